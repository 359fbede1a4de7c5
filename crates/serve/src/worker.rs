//! The thread that owns a language model's engine: takes jobs, steps, and hands text out as it comes.
//!
//! Nothing else touches the engine. Handlers send jobs and hear [`Update`]s over a channel of bounded size; a handler
//! that goes away (its client hung up, its time ran out) cancels its jobs wherever they are, by dropping its [`Ticket`].
//! A job that panics or a forward pass that fails is the error of the requests that took part in it; the thread goes on.

use crate::error::Fault;
use crate::metrics::Metrics;
use inference::sampling::{Sampled, SamplingParams};
use inference::text::{Reasoning, Segment};
use inference::{
    Engine, EngineOptions, Event, Finish, FinishReason, Guide, LanguageModel, SequenceId, TextStream, Totals,
};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Updates that may wait for a client that reads slowly, before its request is ended.
pub(crate) const UPDATES: usize = 4096;

/// A text to be made.
pub(crate) struct Job {
    /// Which answer of its request.
    pub(crate) choice: usize,
    pub(crate) prompt: Arc<[u32]>,
    pub(crate) params: SamplingParams,
    /// Tells reasoning apart from the answer.
    pub(crate) reasoning: Option<Reasoning>,
    /// Where its reasoning ends, if it has not by itself.
    pub(crate) budget: Option<Budget>,
    /// What holds its text.
    pub(crate) guide: Option<Guide>,
    /// Where its text goes.
    pub(crate) updates: mpsc::Sender<(usize, Update)>,
    /// Its place among those that run or wait: free when its text has ended, however slowly that is read.
    pub(crate) _place: OwnedSemaphorePermit,
}

/// How much of a text may be reasoning.
#[derive(Clone)]
pub(crate) struct Budget {
    /// Most tokens.
    pub(crate) tokens: usize,
    /// What is put after them: the closing tag.
    pub(crate) close: Arc<[u32]>,
    /// What holds the answer that comes then.
    pub(crate) guide: Option<Guide>,
}

/// What happened to a job.
#[derive(Debug)]
pub(crate) enum Update {
    /// New text, with the token that brought it (none at the end of a text).
    Text { segments: Vec<Segment>, token: Option<Sampled> },
    /// It ended.
    Done(Done),
    /// It failed.
    Failed(Fault),
}

/// How a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) finish: FinishReason,
    /// Tokens made, the one that ended the text included.
    pub(crate) tokens: usize,
    /// Of these, tokens of reasoning.
    pub(crate) reasoning: usize,
    /// Tokens of the prompt that were there already.
    pub(crate) cached: usize,
    /// Which stop string ended it.
    pub(crate) stop: Option<usize>,
}

enum Command {
    Start { request: u64, job: Box<Job>, asked: Instant },
    Cancel { request: u64 },
}

/// The handle of the thread; it ends when the last one is dropped.
#[derive(Clone)]
pub(crate) struct Worker {
    commands: Sender<Command>,
    next: Arc<AtomicU64>,
}

/// Jobs of a request: dropping it cancels what has not ended.
pub(crate) struct Ticket {
    commands: Sender<Command>,
    request: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let _ = self.commands.send(Command::Cancel { request: self.request }); // the thread may have ended
    }
}

impl Worker {
    /// Starts the thread; also the context of its engine. `shown` are special tokens that are text here.
    ///
    /// # Errors
    /// What the engine or the system says.
    pub(crate) fn start(
        name: &str,
        model: Arc<LanguageModel>,
        options: EngineOptions,
        shown: Vec<u32>,
        metrics: Arc<Metrics>,
    ) -> Result<(Worker, usize), String> {
        let engine = model.engine(options).map_err(|e| e.to_string())?;
        let context = engine.context();
        let (commands, receiver) = channel();
        let name = name.to_owned();
        let builder = std::thread::Builder::new().name(format!("engine {name}"));
        let thread =
            Thread { name, model, options, shown, engine, told: Totals::default(), jobs: HashMap::new(), metrics };
        builder.spawn(move || thread.run(&receiver)).map_err(|e| e.to_string())?;
        Ok((Worker { commands, next: Arc::new(AtomicU64::new(0)) }, context))
    }

    /// Hands jobs over. They run until they end, or the ticket is dropped.
    pub(crate) fn submit(&self, jobs: impl IntoIterator<Item = Job>) -> Ticket {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let asked = Instant::now();
        for job in jobs {
            let updates = job.updates.clone();
            let choice = job.choice;
            if self.commands.send(Command::Start { request, job: Box::new(job), asked }).is_err() {
                let fault = Fault::internal("the engine of this model has ended");
                let _ = updates.try_send((choice, Update::Failed(fault)));
            }
        }
        Ticket { commands: self.commands.clone(), request }
    }
}

struct Thread {
    name: String,
    model: Arc<LanguageModel>,
    options: EngineOptions,
    shown: Vec<u32>,
    engine: Engine,
    /// What was told last of what it counts.
    told: Totals,
    jobs: HashMap<SequenceId, Running>,
    metrics: Arc<Metrics>,
}

/// A job that the engine has.
struct Running {
    request: u64,
    job: Box<Job>,
    stream: TextStream,
    /// Tokens made.
    tokens: usize,
    /// Of these, tokens of reasoning.
    reasoning: usize,
    /// Whether the text is inside of a block of reasoning.
    thinking: bool,
    /// Tokens of the prompt that were there already.
    cached: usize,
    /// Which stop string came.
    stop: Option<usize>,
    /// Their ids, where they may have to be put in once more.
    made: Vec<u32>,
    asked: Instant,
    first: Option<Instant>,
}

/// What becomes of a job after an event.
enum Next {
    GoesOn,
    /// Its text has ended; the engine may still run it.
    Ended,
    /// Its reasoning has taken all that it may.
    Closes,
}

impl Thread {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            if self.engine.is_idle() {
                match commands.recv() {
                    Ok(command) => self.take(command),
                    Err(_) => return,
                }
            }
            loop {
                match commands.try_recv() {
                    Ok(command) => self.take(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) if self.engine.is_idle() => return,
                    Err(TryRecvError::Disconnected) => break,
                }
            }
            self.step();
            self.gauge();
        }
    }

    /// Tells what the engine counts.
    fn gauge(&mut self) {
        let totals = self.engine.totals();
        self.metrics.engine(&self.name, &totals, &self.told);
        self.told = totals;
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Start { request, mut job, asked } => {
                let guide = job.guide.take();
                match self.add(&job.prompt, job.params.clone(), guide) {
                    Ok(id) => {
                        let tokenizer = self.model.tokenizer();
                        let stream = TextStream::new(tokenizer, &job.params.stop, job.reasoning.clone());
                        let stream = stream.showing(tokenizer, &self.shown);
                        let running = Running {
                            request,
                            tokens: 0,
                            reasoning: 0,
                            thinking: stream.is_reasoning(),
                            cached: 0,
                            stop: None,
                            made: Vec::new(),
                            asked,
                            first: None,
                            stream,
                            job,
                        };
                        self.jobs.insert(id, running);
                    }
                    Err(fault) => _ = job.updates.try_send((job.choice, Update::Failed(fault))),
                }
            }
            Command::Cancel { request } => {
                let (engine, metrics) = (&mut self.engine, &self.metrics);
                self.jobs.retain(|id, running| {
                    if running.request == request {
                        engine.cancel(*id);
                        metrics.cancelled();
                    }
                    running.request != request
                });
            }
        }
    }

    /// Gives the engine a text to go on with.
    fn add(&mut self, prompt: &[u32], params: SamplingParams, guide: Option<Guide>) -> Result<SequenceId, Fault> {
        let (engine, stop_ids) = (&mut self.engine, self.model.stop_ids());
        let added = catch_unwind(AssertUnwindSafe(|| engine.add_guided(prompt, params, stop_ids, guide)));
        let added = added.map_err(|panic| {
            tracing::error!(reason = panic_text(&*panic), "a request could not be begun");
            Fault::internal("the request could not be begun: an internal error")
        })?;
        added.map_err(|error| Fault::of_inference(&error, "messages"))
    }

    fn step(&mut self) {
        match catch_unwind(AssertUnwindSafe(|| self.engine.step())) {
            Ok(Ok(events)) => events.into_iter().for_each(|event| self.on(event)),
            Ok(Err(error)) => self.fail_all(&error.to_string()),
            Err(panic) => self.fail_all(&panic_text(&*panic)),
        }
    }

    fn on(&mut self, event: Event) {
        let id = event.sequence;
        let Some(running) = self.jobs.get_mut(&id) else { return };
        let metrics = &self.metrics;
        let next = catch_unwind(AssertUnwindSafe(|| running.on(event, metrics))).unwrap_or_else(|panic| {
            tracing::error!(reason = panic_text(&*panic), "a request's text could not be made");
            running.send(Update::Failed(Fault::internal("the text could not be made: an internal error")));
            Next::Ended
        });
        match next {
            Next::GoesOn => {}
            Next::Ended => {
                self.engine.cancel(id);
                self.jobs.remove(&id);
            }
            Next::Closes => {
                self.engine.cancel(id);
                if let Some(running) = self.jobs.remove(&id) {
                    self.close_reasoning(running);
                }
            }
        }
    }

    /// Puts a text whose reasoning is too long back in, with the closing tag after what there is of it.
    fn close_reasoning(&mut self, mut running: Running) {
        let Some(budget) = running.job.budget.take() else { return };
        for &id in budget.close.iter() {
            running.tokens += 1;
            running.reasoning += 1;
            running.made.push(id);
            let segments = running.stream.push(id).segments;
            if !segments.is_empty() && !running.send(Update::Text { segments, token: None }) {
                return;
            }
        }
        running.thinking = running.stream.is_reasoning();
        let prompt: Vec<u32> = running.job.prompt.iter().copied().chain(running.made.iter().copied()).collect();
        let left = running.job.params.max_tokens.map(|most| most.saturating_sub(running.tokens));
        if left == Some(0) || prompt.len() >= self.engine.context() {
            running.end(FinishReason::Length, &self.metrics);
            return;
        }
        let params = SamplingParams { max_tokens: left, ..running.job.params.clone() };
        match self.add(&prompt, params, budget.guide) {
            Ok(id) => _ = self.jobs.insert(id, running),
            Err(fault) => _ = running.send(Update::Failed(fault)),
        }
    }

    /// A forward pass failed: its requests fail with it, and the engine starts anew.
    fn fail_all(&mut self, reason: &str) {
        tracing::error!(model = self.name, reason, "a forward pass failed");
        for (_, running) in self.jobs.drain() {
            running.send(Update::Failed(Fault::internal(format!("the forward pass failed: {reason}"))));
        }
        self.gauge();
        match self.model.engine(self.options) {
            Ok(engine) => (self.engine, self.told) = (engine, Totals::default()),
            Err(error) => tracing::error!(model = self.name, %error, "the engine cannot start anew"),
        }
    }
}

impl Running {
    fn on(&mut self, event: Event, metrics: &Metrics) -> Next {
        if let Some(Finish::Failed(reason)) = event.finish {
            self.send(Update::Failed(Fault::internal(format!("generation failed: {reason}"))));
            return Next::Ended;
        }
        if let Some(token) = event.token {
            self.tokens += 1;
            let now = Instant::now();
            if self.first.is_none() {
                self.first = Some(now);
                self.cached = event.counts.cached;
                metrics.first_token(now - self.asked, self.job.prompt.len());
            }
            let ends = event.finish == Some(Finish::Stop);
            let new = if ends { Default::default() } else { self.stream.push(token.id) };
            // Both tags count as reasoning.
            let before = std::mem::replace(&mut self.thinking, self.stream.is_reasoning());
            self.reasoning += usize::from(before || self.thinking);
            if self.job.budget.is_some() {
                self.made.push(token.id);
            }
            let token = (!ends).then_some(token);
            if (!new.segments.is_empty() || token.as_ref().is_some_and(|t| t.logprob.is_some()))
                && !self.send(Update::Text { segments: new.segments, token })
            {
                metrics.cancelled();
                return Next::Ended;
            }
            if new.stop.is_some() {
                self.stop = new.stop;
                return self.end(FinishReason::Stop, metrics);
            }
            let spent = self.job.budget.as_ref().is_some_and(|budget| self.reasoning >= budget.tokens);
            if self.thinking && spent && event.finish.is_none() {
                return Next::Closes;
            }
        }
        match event.finish {
            None => Next::GoesOn,
            Some(Finish::Stop | Finish::Complete) => self.end(FinishReason::Stop, metrics),
            Some(_) => self.end(FinishReason::Length, metrics),
        }
    }

    fn end(&mut self, finish: FinishReason, metrics: &Metrics) -> Next {
        let rest = self.stream.finish();
        self.stop = self.stop.or(rest.stop);
        let finish = if self.stop.is_some() { FinishReason::Stop } else { finish };
        let heard = rest.segments.is_empty() || self.send(Update::Text { segments: rest.segments, token: None });
        if heard {
            let (tokens, reasoning, cached, stop) = (self.tokens, self.reasoning, self.cached, self.stop);
            self.send(Update::Done(Done { finish, tokens, reasoning, cached, stop }));
        }
        if let Some(first) = self.first {
            metrics.ended(self.tokens, first.elapsed());
        }
        Next::Ended
    }

    /// False if nobody hears it, or reads too slowly.
    fn send(&self, update: Update) -> bool {
        match self.job.updates.try_send((self.job.choice, update)) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                tracing::warn!(updates = UPDATES, "a client reads too slowly: its request ends");
                false
            }
        }
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
