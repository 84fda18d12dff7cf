//! `sanlock-top`: what `sanlock top` starts. Asks the daemon now and then, and draws what it says on the terminal.
//!
//! [`snapshot`] has what the daemon says, [`sampler`] asks for it in a thread of its own, so that a daemon that stands still leaves
//! the keys alive, [`app`] holds what is selected, [`draw`] makes lines of it, [`screen`] owns the terminal.
#![forbid(unsafe_code)]

mod app;
#[path = "../../src/cli/top.rs"]
mod args;
mod draw;
mod sampler;
mod screen;
mod snapshot;

use app::App;
use args::TopArgs;
use clap::Parser;
use draw::Look;
use ratatui::crossterm::terminal;
use sampler::Sampler;
use sanlock_client::Client;
use sanlock_sys::output::is_unwanted;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// How long `--once` waits for the daemon.
const ONCE_LIMIT: Duration = Duration::from_secs(10);
/// Columns of `--once` where there is no terminal that has some.
const WIDTH: u16 = 80;

fn main() -> ExitCode {
    let args = match TopArgs::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Where it cannot be written nobody waits for it.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let outcome = if args.once { once(&args) } else { watch(&args) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            let _ = writeln!(std::io::stderr(), "sanlock: top: {text}");
            ExitCode::FAILURE
        }
    }
}

/// A variable that is set and not empty.
fn set(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Whether the terminal shows more than ASCII, as far as the locale says.
fn unicode() -> bool {
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

fn once(args: &TopArgs) -> Result<(), String> {
    let sampler = Sampler::start(Client::new(), Duration::from_secs(args.interval.into()));
    let (outcome, date) = sampler.wait(ONCE_LIMIT).ok_or_else(|| {
        format!("the daemon has not answered for {} s: is it stopped?", ONCE_LIMIT.as_secs())
    })?;
    let mut app = App::new(args.lockspace.clone(), args.sort, args.interval);
    app.heard(Ok(outcome?), date);
    if let Some(name) = &args.lockspace {
        if !app.lockspaces(0).iter().any(|lockspace| lockspace.name == *name) {
            return Err(format!(
                "this host is in no lockspace {name}; 'sanlock client gets' lists those it is in"
            ));
        }
    }
    let width =
        if std::io::stdout().is_terminal() { terminal::size().map_or(WIDTH, |size| size.0) } else { WIDTH };
    let text = draw::text(&app, unicode(), width.max(WIDTH).into(), args.lockspace.as_deref());
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if !is_unwanted(&error) => Err(format!("the output cannot be written: {error}")),
        _ => Ok(()),
    }
}

fn watch(args: &TopArgs) -> Result<(), String> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(
            "input and output must be a terminal; 'sanlock top --once' prints the same once as text, \
                    'sanlock client status --json' for programs"
                .to_owned(),
        );
    }
    if set("TERM").is_none_or(|term| term == "dumb") {
        return Err(
            "the terminal (TERM) cannot move its cursor; 'sanlock top --once' prints the same as text"
                .to_owned(),
        );
    }
    let look = Look { colours: set("NO_COLOR").is_none(), unicode: unicode() };
    let app = App::new(args.lockspace.clone(), args.sort, args.interval);
    let sampler = Sampler::start(Client::new(), Duration::from_secs(args.interval.into()));
    screen::run(app, look, &sampler).map_err(|error| format!("terminal: {error}"))
}
