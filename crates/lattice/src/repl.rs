//! A conversation at the keyboard: lines in, answers out, and commands that begin with a slash.

use crate::conversation::Conversation;
use crate::error::CliError;
use crate::interrupt::Catch;
use crate::language::{Opened, summary};
use crate::speaker::Speaker;
use crate::terminal::Terminal;
use inference::{FinishReason, Generation};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;
use std::io::{self, BufRead, IsTerminal};
use std::ops::ControlFlow;
use std::path::Path;

const HELP: &str = "\
/help            this list
/clear           forget what was said
/system [TEXT]   tell the model something first (without TEXT: show it; `/system -` takes it away)
/save FILE       write the conversation as JSON
/stats           tokens and speed of the last answer
/quit            leave; so does Ctrl-D
Ctrl-C stops an answer. A question that begins with a slash is written with two.";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    Nothing,
    Help,
    Clear,
    System(&'a str),
    Save(&'a str),
    Stats,
    Quit,
    Unknown(&'a str),
    Question(&'a str),
}

impl Line<'_> {
    fn parse(line: &str) -> Line<'_> {
        let line = line.trim();
        let Some(rest) = line.strip_prefix('/') else {
            return if line.is_empty() { Line::Nothing } else { Line::Question(line) };
        };
        if rest.starts_with('/') {
            return Line::Question(rest);
        }
        let (word, rest) = rest.split_once(char::is_whitespace).map_or((rest, ""), |(word, rest)| (word, rest.trim()));
        match word {
            "help" | "?" => Line::Help,
            "clear" => Line::Clear,
            "system" => Line::System(rest),
            "save" => Line::Save(rest),
            "stats" => Line::Stats,
            "quit" | "exit" | "bye" => Line::Quit,
            _ => Line::Unknown(word),
        }
    }
}

/// Where lines come from.
enum Input {
    Keyboard(Box<DefaultEditor>),
    Pipe(io::Lines<io::StdinLock<'static>>),
}

impl Input {
    fn open() -> Result<Input, CliError> {
        if !io::stdin().is_terminal() {
            return Ok(Input::Pipe(io::stdin().lock().lines()));
        }
        let editor = DefaultEditor::new().map_err(|e| CliError::Keyboard { reason: e.to_string() })?;
        Ok(Input::Keyboard(Box::new(editor)))
    }

    /// The next line; None at the end.
    fn next(&mut self) -> Result<Option<String>, CliError> {
        match self {
            Input::Pipe(lines) => lines.next().transpose().map_err(CliError::file("read", Path::new("stdin"))),
            Input::Keyboard(editor) => match editor.readline("> ") {
                Ok(line) => {
                    let _ = editor.add_history_entry(&line);
                    Ok(Some(line))
                }
                // An empty line instead of what was begun.
                Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
                Err(ReadlineError::Eof) => Ok(None),
                Err(error) => Err(CliError::Keyboard { reason: error.to_string() }),
            },
        }
    }
}

/// Runs until the user leaves.
pub(crate) fn run(
    opened: &Opened,
    mut conversation: Conversation,
    show_reasoning: bool,
    terminal: &Terminal,
) -> Result<(), CliError> {
    let mut input = Input::open()?;
    if let Input::Keyboard(_) = input {
        terminal.note(format!("{}, {} tokens of context; /help", opened.name, conversation.context()));
    }
    let mut last: Option<Generation> = None;
    while let Some(line) = input.next()? {
        match Line::parse(&line) {
            Line::Nothing => {}
            Line::Quit => break,
            Line::Help => eprintln!("{HELP}"),
            Line::Clear => conversation.clear(),
            Line::System("") => eprintln!("{}", conversation.system().unwrap_or("(nothing)")),
            Line::System("-") => conversation.set_system(None),
            Line::System(text) => conversation.set_system(Some(text.to_owned())),
            Line::Save("") => eprintln!("/save needs the name of a file"),
            Line::Save(file) => {
                if let Err(error) = save(&conversation, Path::new(file)) {
                    terminal.error(&error);
                }
            }
            Line::Stats => match &last {
                None => eprintln!("nothing was said yet"),
                Some(made) => eprintln!("{} (context {})", summary(made, opened.load), conversation.context()),
            },
            Line::Unknown(word) => eprintln!("/{word} is no command; /help lists them"),
            Line::Question(question) => match answer(&mut conversation, question, show_reasoning, terminal) {
                Ok(made) => last = Some(made),
                Err(CliError::Stdout(error)) => return Err(CliError::Stdout(error)),
                // A question that is too long, say: the next one may do better.
                Err(error) => terminal.error(&error),
            },
        }
    }
    Ok(())
}

fn answer(
    conversation: &mut Conversation,
    question: &str,
    show_reasoning: bool,
    terminal: &Terminal,
) -> Result<Generation, CliError> {
    let (mut speaker, interrupt) = (Speaker::new(terminal, show_reasoning), Catch::new());
    let made = conversation.ask(question, &mut |segments| match speaker.say(segments) && !interrupt.came() {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    });
    speaker.end()?;
    let made = made?;
    match made.finish {
        FinishReason::Cancelled => terminal.note("stopped"),
        FinishReason::Length => terminal.note("the answer ends at --max-tokens, or because the context is full"),
        FinishReason::Stop => {}
    }
    Ok(made)
}

fn save(conversation: &Conversation, file: &Path) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(&conversation.messages()).expect("strings are JSON");
    std::fs::write(file, text + "\n").map_err(CliError::file("write", file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_begins_a_command_and_two_a_question() {
        assert_eq!(Line::parse("  "), Line::Nothing);
        assert_eq!(Line::parse(" hello / there "), Line::Question("hello / there"));
        assert_eq!(Line::parse("//etc is a folder"), Line::Question("/etc is a folder"));
        assert_eq!(Line::parse("/system  be brief "), Line::System("be brief"));
        assert_eq!(Line::parse("/system"), Line::System(""));
        assert_eq!(Line::parse("/save a b.json"), Line::Save("a b.json"));
        assert_eq!(Line::parse("/quit"), Line::Quit);
        assert_eq!(Line::parse("/dance now"), Line::Unknown("dance"));
    }
}
