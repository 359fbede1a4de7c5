"""The workloads E1–E4: which texts are embedded. With the shared folder beside the clone they are read from there, with
their float32 reference; a clone that stands alone makes texts of the same lengths, and the reference comes from
sentence-transformers.

    E1  one sentence of 12 words           E3  256 texts of about 128 tokens
    E2  512 texts of about 32 tokens       E4  256 texts of 8 to 256 tokens, mixed
"""

import json
import random
from pathlib import Path

import numpy as np

# Each is one token of BERT's uncased vocabulary, so that a text of n words has n + 2 tokens.
WORDS = """the of and to in a is was for on as with by he that at from his it an were are which this be had first one their has
its new after who they two her she been other when there all during into school time may years more most only over city some
world would where later up such used many can state about national out known university united then made also under war
family film music game river house water north south small early large light station bridge garden morning evening road train
letter window story king island forest market winter summer church theatre doctor captain village mountain silver stone
voice paper number second third common public history science language machine question answer measure pressure
engine""".split()


def sentences(rng, lengths):
    return [" ".join(rng.choice(WORDS) for _ in range(n - 2)).capitalize() for n in lengths]


def workload(name, shared):
    """(texts, reference vectors or None)"""
    file = shared / f"{name}.json"
    if file.exists():
        return json.loads(file.read_text())["texts"], np.load(shared / f"ref_{name}.npy")
    rng = random.Random(f"lattice {name}")
    lengths = {
        "E1": [14],
        "E2": [rng.choice((30, 31, 32, 32, 32)) for _ in range(512)],
        "E3": [rng.choice((126, 127, 128, 128, 128)) for _ in range(256)],
        "E4": [rng.randint(8, 256) for _ in range(256)],
    }[name]
    return sentences(rng, lengths), None


def token_counts(texts, model_dir):
    """Tokens of each text as the model sees it: with special tokens, cut at its window."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(model_dir) / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(json.loads((Path(model_dir) / "sentence_bert_config.json").read_text())["max_seq_length"])
    return [len(e.ids) for e in tokenizer.encode_batch(texts)]
