"""One table of all ranking methods: what each finds, how good it is, and what it costs. `study.methods` runs it."""
