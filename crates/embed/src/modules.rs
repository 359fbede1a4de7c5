//! What a sentence-transformers folder says about turning hidden states into vectors: `modules.json` and the files it
//! leads to. Whatever changes the numbers is honoured or refused by name.

use crate::error::EmbedError;
use inference::Pooling;
use ops::Activation;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// The effective settings of an embedder.
#[derive(Clone, Debug, PartialEq)]
pub struct Modules {
    /// Poolings, concatenated.
    pub pooling: Vec<Pooling>,
    /// Whether the tokens of a prompt take part in the pooling.
    pub include_prompt: bool,
    /// What follows the pooling, in order.
    pub stages: Vec<Stage>,
    /// Longest input in tokens, if the folder sets one.
    pub window: Option<usize>,
    /// Whether texts are put in lower case before tokenization.
    pub lower_case: bool,
    /// Texts put before an input, by name.
    pub prompts: BTreeMap<String, String>,
    /// The prompt used when none is named.
    pub default_prompt: Option<String>,
}

/// A step after pooling.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// A linear layer.
    Dense(Dense),
    /// Division by the Euclidean length.
    Normalize,
}

/// A `Dense` module.
#[derive(Clone, Debug, PartialEq)]
pub struct Dense {
    /// The folder with its weights.
    pub folder: PathBuf,
    /// Features in.
    pub inputs: usize,
    /// Features out.
    pub outputs: usize,
    /// Whether it has a bias.
    pub bias: bool,
    /// Function applied to its output; `None` is the identity.
    pub activation: Option<Activation>,
    /// Whether its input is added to its output, which then has as many features.
    pub residual: bool,
}

/// Larger files than this are no settings.
const MAX_JSON_BYTES: u64 = 4 << 20;
/// More modules than any folder has.
const MAX_MODULES: usize = 64;
/// More features than any layer has.
const MAX_FEATURES: u64 = 1 << 20;

impl Modules {
    /// Reads a folder. `pooling` stands in where the folder has no `modules.json`.
    pub fn read(dir: &Path, pooling: Option<Pooling>) -> Result<Modules, EmbedError> {
        let mut modules = Modules {
            pooling: Vec::new(),
            include_prompt: true,
            stages: Vec::new(),
            window: None,
            lower_case: false,
            prompts: BTreeMap::new(),
            default_prompt: None,
        };
        match read_json(&dir.join("modules.json"))? {
            Some(list) => modules.read_list(dir, &list)?,
            None => modules.pooling = vec![pooling.ok_or_else(|| EmbedError::NoPooling { dir: dir.to_owned() })?],
        }
        modules.read_prompts(&dir.join("config_sentence_transformers.json"))?;
        Ok(modules)
    }

    /// Whether vectors come out with length 1.
    pub fn normalizes(&self) -> bool {
        self.stages.last() == Some(&Stage::Normalize)
    }

    fn read_list(&mut self, dir: &Path, list: &Value) -> Result<(), EmbedError> {
        let file = dir.join("modules.json");
        let wrong = |what: &str| EmbedError::settings(&file, what);
        let list = list.as_array().filter(|l| l.len() <= MAX_MODULES).ok_or_else(|| wrong("not a list of modules"))?;
        for module in list {
            let text = |key| module.get(key).and_then(Value::as_str);
            let kind = text("type").ok_or_else(|| wrong("a module without `type`"))?;
            let folder = inside(dir, text("path").unwrap_or(""), &file)?;
            // The Python path moved between versions; the class did not.
            match kind.rsplit('.').next().unwrap_or(kind) {
                "Transformer" => self.read_transformer(&folder, dir)?,
                "Pooling" => self.read_pooling(&folder.join("config.json"))?,
                "Dense" => self.stages.push(Stage::Dense(Dense::read(folder)?)),
                "Normalize" => {
                    only_sentence(&folder.join("config.json"))?;
                    self.stages.push(Stage::Normalize);
                }
                "Dropout" => {} // does nothing outside training
                _ => return Err(EmbedError::Module { file, module: kind.to_owned() }),
            }
        }
        if self.pooling.is_empty() {
            return Err(wrong("no Pooling module"));
        }
        Ok(())
    }

    fn read_transformer(&mut self, folder: &Path, dir: &Path) -> Result<(), EmbedError> {
        let file = folder.join("sentence_bert_config.json");
        if folder != dir {
            return Err(EmbedError::settings(
                &dir.join("modules.json"),
                "the Transformer module lies in a folder of its own",
            ));
        }
        let Some(Value::Object(settings)) = read_json(&file)? else { return Ok(()) };
        self.window = match settings.get("max_seq_length") {
            None | Some(Value::Null) => None,
            Some(n) => Some(
                n.as_u64()
                    .filter(|&n| n > 0)
                    .ok_or_else(|| EmbedError::settings(&file, "max_seq_length is not a positive number"))?
                    as usize,
            ),
        };
        self.lower_case = flag(&settings, "do_lower_case", false, &file)?;
        match settings.get("transformer_task") {
            None | Some(Value::Null) => Ok(()),
            Some(Value::String(task)) if task == "feature-extraction" => Ok(()),
            Some(other) => Err(EmbedError::settings(
                &file,
                &format!("transformer_task {other} is not built, only feature-extraction"),
            )),
        }
    }

    fn read_pooling(&mut self, file: &Path) -> Result<(), EmbedError> {
        let settings = object(file)?;
        let unknown = |mode: &str| EmbedError::Pooling { file: file.to_owned(), mode: mode.to_owned() };
        self.pooling = match settings.get("pooling_mode") {
            Some(Value::String(name)) => vec![by_name(name).ok_or_else(|| unknown(name))?],
            Some(Value::Array(names)) => {
                let mode = |name: &Value| name.as_str().and_then(by_name).ok_or_else(|| unknown(&name.to_string()));
                names.iter().map(mode).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(unknown(&other.to_string())),
            None => {
                for (key, value) in settings.iter().filter(|(key, _)| key.starts_with("pooling_mode_")) {
                    if *value != Value::Bool(false) && !Pooling::ALL.iter().any(|mode| mode.switch() == key) {
                        return Err(unknown(key));
                    }
                }
                let mut on = Vec::new();
                for mode in Pooling::ALL {
                    if flag(&settings, mode.switch(), false, file)? {
                        on.push(mode);
                    }
                }
                on
            }
        };
        if self.pooling.is_empty() {
            return Err(EmbedError::settings(file, "no pooling mode is switched on"));
        }
        self.include_prompt = flag(&settings, "include_prompt", true, file)?;
        Ok(())
    }

    fn read_prompts(&mut self, file: &Path) -> Result<(), EmbedError> {
        let Some(Value::Object(settings)) = read_json(file)? else { return Ok(()) };
        if let Some(Value::Object(prompts)) = settings.get("prompts") {
            for (name, text) in prompts {
                let text =
                    text.as_str().ok_or_else(|| EmbedError::settings(file, &format!("prompt {name} is not text")))?;
                self.prompts.insert(name.clone(), text.to_owned());
            }
        }
        if let Some(Value::String(name)) = settings.get("default_prompt_name") {
            if !self.prompts.contains_key(name) {
                return Err(EmbedError::settings(
                    file,
                    &format!("default_prompt_name {name} is not among the prompts"),
                ));
            }
            self.default_prompt = Some(name.clone());
        }
        Ok(())
    }
}

impl Dense {
    fn read(folder: PathBuf) -> Result<Dense, EmbedError> {
        let file = folder.join("config.json");
        let settings = object(&file)?;
        only_sentence(&file)?;
        let features = |key: &str| {
            let value = settings.get(key).and_then(Value::as_u64).filter(|n| (1..=MAX_FEATURES).contains(n));
            value
                .map(|n| n as usize)
                .ok_or_else(|| EmbedError::settings(&file, &format!("{key} is not a number of features")))
        };
        // The module's default, in a folder that does not say.
        let function = settings.get("activation_function").and_then(Value::as_str).unwrap_or("torch.nn.Tanh");
        let activation = match function.rsplit('.').next().unwrap_or(function) {
            "Identity" => None,
            "Tanh" => Some(Activation::Tanh),
            "GELU" => Some(Activation::Gelu),
            "ReLU" => Some(Activation::Relu),
            "SiLU" => Some(Activation::Silu),
            "Sigmoid" => Some(Activation::Sigmoid),
            _ => return Err(EmbedError::settings(&file, &format!("activation_function {function} is not built"))),
        };
        let (inputs, outputs) = (features("in_features")?, features("out_features")?);
        let (bias, residual) = (flag(&settings, "bias", true, &file)?, flag(&settings, "use_residual", false, &file)?);
        if residual && inputs != outputs {
            return Err(EmbedError::settings(
                &file,
                "use_residual with another number of features out than in is not built",
            ));
        }
        Ok(Dense { folder, inputs, outputs, bias, activation, residual })
    }
}

fn by_name(name: &str) -> Option<Pooling> {
    Pooling::ALL.into_iter().find(|mode| mode.name() == name)
}

/// Modules of ours work on the text's vector, not on its tokens or on named features.
fn only_sentence(file: &Path) -> Result<(), EmbedError> {
    let Some(Value::Object(settings)) = read_json(file)? else { return Ok(()) };
    for key in ["module_input_name", "module_output_name"] {
        match settings.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::String(name)) if name == "sentence_embedding" => {}
            Some(other) => {
                return Err(EmbedError::settings(
                    file,
                    &format!("{key} {other} is not built, only sentence_embedding"),
                ));
            }
        }
    }
    Ok(())
}

fn flag(settings: &Map<String, Value>, key: &str, default: bool, file: &Path) -> Result<bool, EmbedError> {
    match settings.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(EmbedError::settings(file, &format!("{key} is {other}, expected true or false"))),
    }
}

/// A module's folder, which must not leave the model's.
fn inside(dir: &Path, path: &str, file: &Path) -> Result<PathBuf, EmbedError> {
    let parts = Path::new(path).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if path.is_empty() {
        return Ok(dir.to_owned());
    }
    if parts {
        Ok(dir.join(path))
    } else {
        Err(EmbedError::settings(file, &format!("path {path:?} leaves the model's folder")))
    }
}

fn object(file: &Path) -> Result<Map<String, Value>, EmbedError> {
    match read_json(file)? {
        Some(Value::Object(settings)) => Ok(settings),
        Some(_) => Err(EmbedError::settings(file, "not a JSON object")),
        None => Err(EmbedError::settings(file, "the file is missing")),
    }
}

/// The file's JSON, or `None` if there is no such file.
pub(crate) fn read_json(file: &Path) -> Result<Option<Value>, EmbedError> {
    let unreadable = |e: std::io::Error| EmbedError::settings(file, &e.to_string());
    let size = match std::fs::metadata(file) {
        Ok(metadata) => metadata.len(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(e)),
    };
    if size > MAX_JSON_BYTES {
        return Err(EmbedError::settings(file, &format!("{size} bytes are too many for settings")));
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|e| EmbedError::settings(file, &format!("not JSON: {e}")))
}
