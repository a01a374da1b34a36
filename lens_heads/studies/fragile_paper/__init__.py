"""The study "Different Heads, Same Fragile Tasks": do tasks share heads, and do models share heads or fragile tasks?"""
