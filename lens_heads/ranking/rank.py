"""rank: the heads of a model by any method, or by several that share what they can."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from lens_heads.heads.named import Rankings
from lens_heads.heads.scores import HeadScores
from lens_heads.model.geometry import Model, head_geometry, require_raw_weights
from lens_heads.model.workers import worker_pool
from lens_heads.ranking import registry
from lens_heads.ranking.material import Material
from lens_heads.ranking.method import Method
from lens_heads.ranking.one_pass.definition import READS, Probe, Scorer
from lens_heads.ranking.one_pass.score_heads import AnyProbe, probed, score_heads
from lens_heads.runs import checks
from lens_heads.runs.files import plain_name
from lens_heads.runs.options import Run, RunOptions
from lens_heads.runs.reading import user_path
from lens_heads.runs.typed import typed
from lens_heads.runs.warned import users_line
from lens_heads.trials.checked_tokens import encode_all
from lens_heads.trials.documents import AnyDocuments
from lens_heads.trials.encoded import EncodedTrial
from lens_heads.trials.pairs import Corruption, chosen_corruption, make_pairs
from lens_heads.trials.trial import AnyTrial


@typed
def rank(
    model: Model,
    trials: Iterable[AnyTrial | AnyDocuments | AnyProbe] | AnyTrial | AnyDocuments | AnyProbe,
    methods: Any = None,
    *,
    k: int = 5,
    masks: int = 100,
    calibration: Iterable[AnyTrial] | AnyTrial | None = None,
    corruption: Corruption | None = None,
    teacher_forced: bool = True,
    seed: int = 0,
    **run: Unpack[RunOptions],
) -> Rankings:
    """Rank all heads by each of the methods, from the same trials.

    Args:
        model: a TransformerBridge or HookedTransformer with raw weights.
        trials: the trials that rank. Evidence about the heads found has to come from others. Or what some methods need in
            their place: `DocumentTrial`s, or a probe as in `score_heads` (`lh.repeated_blocks`, `lh.plain_texts`,
            `lh.context_pairs`, `lh.token_maps`); only `methods`, `out` and `progress` apply to them.
        methods: names of `lh.methods`, your own `Method`s or `Scorer`s, or functions of `Material` that return `HeadScores`.
            None: all that are read off one pass over what is given.
        k: how many heads a search looks for. masks: how many random sets of heads the methods that draw some ablate.
        calibration: other trials of the task, whose mean activations stand in for ablated heads; None for means of ordinary
            prompts.
        corruption: as in `make_pairs`, of the methods that compare a clean with a corrupt run. None: "counterfactual" for trials
            that have one, otherwise "remove".
        teacher_forced: whether scores are read at the gold answer, as all other methods do; otherwise at what the model writes,
            of the trials that it answers.
        seed: of everything drawn.
        **run: see `runs.options.RunOptions`. In `out` every method has a folder of its own, and its scores in `<method>.json`.

    Scorers share one pass, whatever their number; it is the first thing that runs, and the error of one ends it. Of the other
    methods one that fails is left out, with a warning.

    Returns:
        HeadScores by the methods' names, in the order given.

    Raises:
        ValueError: an unknown method, trials that lack what a method needs (naming it), and what the methods refuse; the error
            of the first method, if all fail.

    Cost: `lh.methods[name].passes`, in plain passes over the trials.

    Example:
        >>> found = lh.rank(model, trials, ["locos", "attention_mass"], progress=False)
        >>> list(found), found["locos"].top(2) == heads
        (['locos', 'attention_mass'], True)
    """
    listed, probe = probed(trials)
    if probe != "needle":
        given = {"k": k, "masks": masks, "seed": seed, "teacher_forced": teacher_forced}
        given |= {"calibration": calibration, "corruption": corruption}
        defaults = inspect.signature(rank).parameters
        return _of_probe(
            model, listed, probe, methods, [name for name in given if given[name] != defaults[name].default], run
        )
    options = Run.of(run)
    checks.whole_number("masks", masks)
    checks.seed(seed)
    chosen = registry.resolve(methods)
    if methods is None:
        chosen = [one for one in chosen if _of_needles(one)]
    if calibration is not None:
        check_calibrated("calibration=", chosen)
    require_raw_weights(model)
    shape = head_geometry(model)
    checks.whole_number("k", k, 1, shape.size, ", the number of heads")
    encoded = _encoded(model, listed, 0 if teacher_forced else options.max_new_tokens)
    others = () if calibration is None else tuple(_encoded(model, calibration, 0))
    wants = any("pairs" in method.needs for method in chosen)
    material = Material.of(
        model,
        encoded,
        _pairs(model, encoded, corruption) if wants else (),
        others,
        masks=masks,
        k=k,
        seed=seed,
        out=None if options.out is None else user_path(options.out, "out"),
        progress=options.progress,
    )
    for method in chosen:
        if missing := method.missing(material):
            raise ValueError(f"method {method.name!r}: {missing}")
        if material.out is not None:
            plain_name(method.name, "method")
    with worker_pool(model, run.get("workers")):
        found = _by_one_pass(
            material, [one.scorer for one in chosen if one.scorer and _of_needles(one)], teacher_forced, options
        )
        errors: list[Exception] = []
        for method in chosen:
            if method.name in found:
                continue
            try:
                found[method.name] = ranked(method, material)
            except Exception as error:  # One method's failure must not cost what the others found.
                errors.append(error)
                if len(chosen) > 1:
                    warnings.warn(f"method {method.name} failed and is left out: {error}", stacklevel=users_line())
    if not found:
        raise errors[0]
    if material.out is not None:
        for name, scores in found.items():
            scores.save(material.out / f"{name}.json")
    return Rankings({method.name: found[method.name] for method in chosen if method.name in found})


def check_calibrated(what: str, methods: Sequence[Method]) -> None:
    """ValueError if none of the methods puts means of other trials in the place of heads."""
    if all(method.scorer is not None for method in methods):
        raise ValueError(
            f"{what} changes nothing: {', '.join(one.name for one in methods[:3])} ablate no head. Leave it out"
        )


def ranked(method: Method, material: Material) -> HeadScores:
    """One method's ranking, under its name. TypeError if it returns no HeadScores, ValueError if they are of another model."""
    found: Any = method.rank(material)
    if not isinstance(found, HeadScores):
        raise TypeError(f"method {method.name} returned {type(found).__name__}: it must return HeadScores")
    head_geometry(material.model).check_scores(found, f"method {method.name!r}")
    signed = found.signed if method.signed is None else method.signed
    return replace(found, method=method.name, signed=signed, score_unit=found.score_unit or method.unit)


def _of_probe(
    model: Model, given: list[Any], probe: Probe, methods: Any, unused: list[str], run: RunOptions
) -> Rankings:
    """Scores of documents or a probe. ValueError for arguments of trials, and for a method that reads something else."""
    if unused:
        raise ValueError(f"{unused[0]}= applies to trials of a task, not to document trials or probes: omit it")
    chosen = None if methods is None else registry.resolve(methods)
    for method in chosen or ():
        if method.scorer is None:
            raise ValueError(f"method {method.name!r} needs trials of a task, but was given {READS[probe]}")
    scorers = None if chosen is None else [method.scorer for method in chosen if method.scorer]
    out = run.get("out")
    place = None if out is None else user_path(out, "out")
    how: RunOptions = {**run, "out": None if place is None else place / "one_pass"}  # type: ignore[typeddict-item]
    found = score_heads(model, given, scorers, **how)
    if place is not None:
        for name, scores in found.items():
            scores.save(place / f"{name}.json")
    return found


def _of_needles(method: Method) -> bool:
    return method.scorer is not None and method.scorer.probe == "needle"


def _by_one_pass(material: Material, scorers: list[Scorer], teacher_forced: bool, options: Run) -> Rankings:
    """All scorers of needles, from one pass."""
    if not scorers:
        return Rankings()
    how: dict[str, Any] = {**material.loop("one_pass"), "batch_size": options.batch_size}
    how |= {} if teacher_forced else {"max_new_tokens": options.max_new_tokens}
    return score_heads(material.model, material.needled, scorers, teacher_forced=teacher_forced, **how)


def _encoded(model: Model, trials: Iterable[AnyTrial] | AnyTrial, room: int) -> list[EncodedTrial]:
    shape = head_geometry(model)
    return encode_all(trials, model.tokenizer, shape.n_ctx, room, shape.d_vocab)


def _pairs(model: Model, trials: list[EncodedTrial], corruption: Corruption | None) -> list[EncodedTrial]:
    """The trials beside their corruption; none where they have neither a counterfactual nor a needle."""
    chosen = chosen_corruption(trials, corruption)
    if corruption is None and chosen == "remove" and not any(trial.needle for trial in trials):
        return []
    return make_pairs(trials, model.tokenizer, head_geometry(model), corruption=chosen)
