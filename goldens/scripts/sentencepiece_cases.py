"""Small SentencePiece models of every kind, and what the library makes of random texts and random ids.

    pip install sentencepiece==0.2.3 protobuf
    python sentencepiece_cases.py --texts ../tokenizers/texts.json --out ../tokenizers/sentencepiece [--nfkc] [--count N] [--seed N]

NAME.model and NAME.json: items with text, ids, decoded, and noise (ids), noise_decoded. `--nfkc` makes models with the
library's own normalisation tables (250 kB each, not stored); LATTICE_SENTENCEPIECE_CASES names such a folder to the test.
"""
import argparse, json, random
from pathlib import Path
import sentencepiece as spm
from sentencepiece import sentencepiece_model_pb2 as pb

KINDS = {
    "unigram_symbols": dict(model_type="unigram", user_defined_symbols="<sep>,ab c,xyz", control_symbols="<ctl>", normalization_rule_name="identity"),
    "unigram_bytes": dict(model_type="unigram", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, vocab_size=950),
    "bpe_symbols": dict(model_type="bpe", user_defined_symbols="<sep>,ab c,xyz", control_symbols="<ctl>", normalization_rule_name="identity"),
    "bpe_suffix": dict(model_type="bpe", treat_whitespace_as_suffix=True, normalization_rule_name="identity"),
    "bpe_unused": dict(model_type="bpe", normalization_rule_name="identity", add_dummy_prefix=False),
}
NFKC = {
    "unigram_nfkc_cf": dict(model_type="unigram", user_defined_symbols="<sep>,Ａb", normalization_rule_name="nmt_nfkc_cf"),
    "bpe_nfkc": dict(model_type="bpe", user_defined_symbols="<sep>", byte_fallback=True, vocab_size=950, normalization_rule_name="nfkc"),
}
def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--texts", required=True); ap.add_argument("--out", required=True); ap.add_argument("--nfkc", action="store_true")
    ap.add_argument("--count", type=int, default=60); ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    texts = json.load(open(args.texts)); out = Path(args.out); out.mkdir(parents=True, exist_ok=True)
    corpus = out / "corpus.tmp"; corpus.write_text("\n".join(t.replace("\n", " ").replace("\0","") for t in texts if 0 < len(t) < 300))
    rnd = random.Random(args.seed); chars = sorted({c for t in texts for c in t} - {"\0"})
    words = [w for t in texts for w in t.split()]
    def text():
        parts = []
        for _ in range(rnd.randint(0, 12)):
            parts.append(rnd.choice([lambda: rnd.choice(words), lambda: rnd.choice(["<sep>", "ab c", "xyz", "<ctl>", "<s>", "<unk>", "▁", "⁇", "<0x41>"]),
                lambda: "".join(rnd.choice(chars) for _ in range(rnd.randint(1, 5))), lambda: " " * rnd.randint(1, 3), lambda: rnd.choice("aeiost01") * rnd.randint(1, 20)])())
            if rnd.random() < .5: parts.append(" ")
        return "".join(parts)[:200]
    for name, options in (NFKC if args.nfkc else KINDS).items():
        options = {"vocab_size": 700, **options}
        spm.SentencePieceTrainer.train(input=str(corpus), model_prefix=str(out / name), num_threads=1, minloglevel=2, character_coverage=0.98, hard_vocab_limit=False, **options)
        (out / f"{name}.vocab").unlink()
        file = out / f"{name}.model"; proto = pb.ModelProto(); proto.ParseFromString(file.read_bytes())
        proto.trainer_spec.ClearField("input"); proto.trainer_spec.model_prefix = name
        if name == "bpe_unused":
            for i, p in enumerate(proto.pieces):
                if p.type == 1 and len(p.piece) > 1 and i % 3 == 0: p.type = 5
        file.write_bytes(proto.SerializeToString(deterministic=True))
        sp = spm.SentencePieceProcessor(model_file=str(file)); n = sp.get_piece_size(); items = []
        for t in [text() for _ in range(args.count)]:
            ids = sp.encode(t); noise = [rnd.randrange(n) for _ in range(rnd.randint(0, 12))]
            if rnd.random() < .5: noise = [rnd.choice([x for x in range(n) if sp.is_byte(x)] or [5]) if rnd.random() < .6 else x for x in noise]
            items.append({"text": t, "ids": ids, "decoded": sp.decode(ids), "noise": noise, "noise_decoded": sp.decode(noise)})
        head = json.dumps({"name": name, "library": f"sentencepiece {spm.__version__}"})[:-1]
        (out / f"{name}.json").write_text(head + ', "items": [\n' + ",\n".join(json.dumps(i, separators=(",", ":")) for i in items) + "\n]}\n")
        print(name, n)
    corpus.unlink()
main()
