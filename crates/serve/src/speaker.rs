//! A language model that is served: from texts to prompts that fit, and from prompts to running jobs.

use crate::error::Fault;
use crate::metrics::Metrics;
use crate::options::{Defaults, ModelSpec, Options};
use crate::tools::Format;
use crate::worker::{Budget, Job, Ticket, UPDATES, Update, Worker};
use inference::sampling::SamplingParams;
use inference::text::Reasoning;
use inference::{Guide, InferenceError, LanguageModel};
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// A language model with its engine's thread.
pub(crate) struct Speaker {
    pub(crate) name: String,
    pub(crate) model: Arc<LanguageModel>,
    /// How it writes tool calls.
    pub(crate) tools: Format,
    /// Whether its template has a place for tools.
    pub(crate) tells_tools: bool,
    /// Longest text in tokens, prompt and answer.
    pub(crate) context: usize,
    worker: Worker,
    defaults: Arc<Defaults>,
    /// Who may run or wait.
    places: Arc<Semaphore>,
    /// Texts that run side by side.
    parallel: usize,
    /// Places in all.
    all_places: usize,
    /// Bytes of the longest token: a text has no fewer tokens than its bytes divided by this.
    longest: usize,
    cache_bytes: u64,
}

/// One text to be made.
pub(crate) struct Start {
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) params: SamplingParams,
    pub(crate) reasoning: Option<Reasoning>,
    pub(crate) budget: Option<Budget>,
    pub(crate) guide: Option<Guide>,
}

/// Texts in the making: dropping it gives them up.
pub(crate) struct Running {
    updates: mpsc::Receiver<(usize, Update)>,
    /// Heard before, and to be heard once more.
    again: Option<(usize, Update)>,
    _ticket: Ticket,
}

impl Running {
    /// What happened next, and to which text; none if the thread gave them up.
    pub(crate) async fn next(&mut self) -> Option<(usize, Update)> {
        match self.again.take() {
            None => self.updates.recv().await,
            again => again,
        }
    }

    /// To be heard once more.
    pub(crate) fn again(&mut self, update: (usize, Update)) {
        self.again = Some(update);
    }
}

impl Speaker {
    /// Opens a model and starts its thread.
    pub(crate) fn open(spec: &ModelSpec, options: &Options, metrics: Arc<Metrics>) -> Result<Speaker, String> {
        let model = LanguageModel::open(&spec.located.path, options.ops.clone()).map_err(|e| e.to_string())?;
        for tensor in &model.loaded().unused {
            tracing::debug!(model = spec.name, tensor, "a tensor that nothing reads");
        }
        let not_built = &model.defaults().not_built;
        if !not_built.is_empty() {
            let set = not_built.join(", ");
            tracing::warn!(
                model = spec.name,
                "generation_config.json sets {set}, which is not built: it has no effect"
            );
        }
        let model = Arc::new(model);
        let tokenizer = model.tokenizer();
        let bytes = |id: u32| tokenizer.piece_bytes(id).map_or(0, |piece| piece.len());
        let longest = (0..tokenizer.vocab_size() as u32).map(bytes).max().unwrap_or(1).max(1);
        let template = tokenizer.config().chat_template.clone().unwrap_or_default();
        let tools = Format::of_template(&template);
        let shown: Vec<u32> = tools.tokens().iter().filter_map(|token| tokenizer.token_to_id(token)).collect();
        let (worker, context) = Worker::start(&spec.name, model.clone(), options.engine, shown, metrics)?;
        let states = model.loaded().model.states();
        let token: usize = states.iter().map(|s| s.token_bytes(options.engine.kv)).sum();
        let slot: usize = states.iter().map(|s| s.slot_bytes()).sum();
        let parallel = options.engine.parallel.max(1);
        let all_places = parallel + options.max_queue;
        Ok(Speaker {
            name: spec.name.clone(),
            tools,
            tells_tools: template.contains("tools"),
            context,
            worker,
            defaults: options.defaults.clone(),
            places: Arc::new(Semaphore::new(all_places)),
            parallel,
            all_places,
            longest,
            cache_bytes: (parallel * (token * context + slot)) as u64,
            model,
        })
    }

    /// Bytes of the room for keys, values and states.
    pub(crate) fn cache_bytes(&self) -> u64 {
        self.cache_bytes
    }

    /// How tokens are chosen where a request says nothing.
    pub(crate) fn defaults(&self) -> SamplingParams {
        (self.defaults)(self.model.defaults().params())
    }

    /// Ids of a text, unless it cannot fit: then it is not even encoded. `rendered` has its special tokens already.
    pub(crate) fn encode(&self, text: &str, rendered: bool, param: &str) -> Result<Vec<u32>, Fault> {
        let least = text.len() / self.longest;
        if least >= self.context {
            return Err(Fault::too_long(format_args!("at least {least}"), self.context, param));
        }
        let ids = if rendered { self.model.encode_rendered(text) } else { self.model.encode_text(text) };
        let ids = ids.map_err(|error| Fault::of_inference(&error, param))?;
        self.check_prompt(&ids, param)?;
        Ok(ids)
    }

    /// Whether ids can be a prompt.
    pub(crate) fn check_prompt(&self, ids: &[u32], param: &str) -> Result<(), Fault> {
        let vocab = self.model.loaded().model.shape().vocab;
        let error = match ids.len() {
            0 => InferenceError::EmptyPrompt,
            tokens if tokens >= self.context => InferenceError::PromptTooLong { tokens, context: self.context },
            _ => match ids.iter().find(|&&id| id as usize >= vocab) {
                Some(id) => {
                    let message = format!("{param} has token {id}, expected ids below {vocab}");
                    return Err(Fault::field(param, message));
                }
                None => return Ok(()),
            },
        };
        Err(Fault::of_inference(&error, param))
    }

    /// Whether these parameters fit the model.
    pub(crate) fn check_params(&self, params: &SamplingParams) -> Result<(), Fault> {
        let vocab = self.model.loaded().head.as_ref().map_or(0, |head| head.out.outputs);
        params.check().and_then(|()| params.check_ids(vocab)).map_err(|error| Fault::of_sampling(&error))
    }

    /// Takes texts into the queue.
    ///
    /// # Errors
    /// A full queue.
    pub(crate) fn start(self: &Arc<Self>, texts: Vec<Start>) -> Result<Running, Fault> {
        let count = texts.len();
        if count > self.all_places {
            let message = format!("{count} texts were asked for at once, but this server takes {}", self.all_places);
            return Err(Fault::field("n", message));
        }
        let place = self.places.clone().try_acquire_many_owned(count as u32);
        let mut places = place.map_err(|_| Fault::busy(1 + (self.all_places / self.parallel / 4) as u64))?;
        let (sender, updates) = mpsc::channel(UPDATES);
        let jobs = texts.into_iter().enumerate().filter_map(|(choice, text)| {
            Some(Job {
                choice,
                prompt: text.prompt,
                params: text.params,
                reasoning: text.reasoning,
                budget: text.budget,
                guide: text.guide,
                updates: sender.clone(),
                _place: places.split(1)?,
            })
        });
        let ticket = self.worker.submit(jobs);
        Ok(Running { updates, again: None, _ticket: ticket })
    }
}
