"""Do linear heads look something up, and do scores find them? A tiny hybrid, trained to say what stood behind a letter.

A prompt is a row of letters, each with a digit behind it, and one of the letters again: `k3 f7 a1 ... f`, which 7 answers. The
model (Qwen 3.5's kind) has softmax attention in layer 0, which cannot look up alone, and gated delta rules in layers 1 and 2.
Heads are ranked on some prompts and ablated (mean of other prompts) on others, beside random heads.

Appends JSON to benchmarks/results/linear_heads.jsonl. Run: python benchmarks/linear_heads.py [--steps 3000]
"""

from __future__ import annotations

import argparse
import math
import random
import string
import tempfile
import time
from typing import Any

import torch
from record import append
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM

import lens_heads as lh
from lens_heads.sanity.planted_weights import byte_tokenizer
from lens_heads.studies.finding import plain

PAIRS = 8
METHODS = ("locos", "locos_exact", "dla")
CONTROLS = lh.Controls(("random",), 20)
SETTINGS: dict[str, Any] = dict(
    vocab_size=256, bos_token_id=1, eos_token_id=2, pad_token_id=0, num_hidden_layers=3, hidden_size=64, intermediate_size=128,
    max_position_embeddings=512, num_attention_heads=4, num_key_value_heads=2, head_dim=16, linear_num_key_heads=4,
    linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16, linear_conv_kernel_dim=4, initializer_range=0.1,
    layer_types=["full_attention", "linear_attention", "linear_attention"],
)  # fmt: skip


def trial(tokenizer: Any, number: int, generator: random.Random) -> lh.EncodedTrial:
    """One prompt; its needle is the pair that is asked for, and its counterfactual asks for another one."""
    letters = generator.sample(string.ascii_lowercase, PAIRS)
    digits = [generator.choice(string.digits) for _ in letters]
    asked = generator.randrange(PAIRS)
    other = generator.choice([at for at in range(PAIRS) if digits[at] != digits[asked]] or [asked])

    def tokens(text: str) -> torch.Tensor:
        return torch.tensor(tokenizer(text, add_special_tokens=False).input_ids)  # A token a character.

    row = " ".join(map("".join, zip(letters, digits, strict=True)))
    return lh.EncodedTrial(
        tokens(f"{row} {letters[asked]}"),
        needle=(3 * asked, 3 * asked + 2),
        answer=digits[asked],
        answer_tokens=tokens(digits[asked]),
        id=str(number),
        corrupt=tokens(f"{row} {letters[other]}"),
        wrong=tokens(digits[other]) if other != asked else None,
    )


def batch(n: int, generator: random.Random) -> tuple[list[str], torch.Tensor]:
    """Rows of pairs, each followed by the same pairs in another order, and where the digits of these stand."""
    texts = []
    for _ in range(n):
        pairs = [a + generator.choice(string.digits) for a in generator.sample(string.ascii_lowercase, PAIRS)]
        texts.append(" ".join(pairs + generator.sample(pairs, PAIRS)))
    return texts, torch.arange(3 * PAIRS + 1, 6 * PAIRS - 1, 3)


def fresh() -> Any:
    """A model with the first decays and convolutions of the reference code: transformers leaves decays that forget at once."""
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3_5_text", **SETTINGS)).train()
    for name, parameter in model.named_parameters():
        if name.endswith("dt_bias"):
            step = torch.empty_like(parameter).uniform_(math.log(1e-3), math.log(0.1)).exp()
            parameter.data.copy_(torch.expm1(step).log())
        elif name.endswith("conv1d.weight"):
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def trained(folder: str, steps: int, seed: int) -> float:
    """Train a model from nothing, save it, and return its last loss."""
    torch.manual_seed(seed)
    generator, tokenizer, model = random.Random(seed), byte_tokenizer(folder), fresh()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.05)
    loss = torch.tensor(torch.nan)
    for step in range(steps):
        texts, digits = batch(64, generator)
        tokens = torch.tensor([tokenizer(text, add_special_tokens=False).input_ids for text in texts])
        logits = model(tokens, use_cache=False).logits[:, digits - 1]
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, digits].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}: loss {float(loss.detach()):.3f}", flush=True)
    model.eval().save_pretrained(folder)
    return float(loss.detach())


def measured(model: Any, seed: int, select: int = 60, test: int = 120) -> dict[str, Any]:
    """How often the model is right, which heads lead each ranking, and what their ablation takes beside random heads'."""
    generator = random.Random(seed + 1)
    made = [trial(model.tokenizer, number, generator) for number in range(2 * select + test)]
    chosen, others, judged = made[:select], made[select : 2 * select], made[2 * select :]
    found = {**lh.score_heads(model, chosen, list(METHODS), teacher_forced=True, progress=False)}
    found["patching"] = lh.patch_heads(model, chosen, progress=False)
    reference = lh.mean_activations(model, others, progress=False)
    curve = lh.ablation_curve(
        model,
        judged,
        found,
        ks=[1, 2, 4],
        kind="mean",
        reference=reference,
        controls=CONTROLS,
        generate=False,
        progress=False,
    )
    return {
        "linear": lh.head_geometry(model).linear,
        "right": lh.evaluate(model, judged, max_new_tokens=1, progress=False).mean("greedy_match"),
        "top": {name: [str(head) for head in one.top(4)] for name, one in found.items()},
        "damage": [
            {"ranking": name, "k": k, **curve.difference(lh.Condition.none(), condition(name, k), "logprob")._asdict()}
            for name in (*found, "random")
            for k in (1, 2, 4)
        ],
    }


def condition(name: str, k: int) -> Any:
    return lh.Condition.random(k) if name == "random" else lh.Condition.top(name, k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        loss = trained(folder, given.steps, given.seed)
        seconds = time.perf_counter() - start
        model = lh.load_model(folder, linear_heads=True)
    about = {"steps": given.steps, "seed": given.seed, "pairs": PAIRS, "loss": loss, "seconds": seconds}
    append("linear_heads", plain({**about, **measured(model, given.seed)}))


if __name__ == "__main__":
    main()
