//! `command`: hold leases while a program runs (command-line.md 7.14).
//!
//! The program replaces this process, so that the pid stays the same and the registered descriptor stays open in it: the daemon
//! keeps the leases until the last copy of that descriptor is closed.

use super::convert::acquire as wire_resources;
use super::lease::acquire_flags;
use super::owner::{Waiting, explain_refusal};
use super::{explain, result_of};
use crate::cli::command::AcquireArgs;
use crate::output::{FAILURE, note, print, print_error, system_text};
use crate::progress::{Signs, show};
use crate::subject::resources;
use nix::unistd::execv;
use sanlock_client::Client;
use sanlock_sys::sigpipe;
use std::ffi::CString;
use std::io::IsTerminal;
use std::os::fd::AsRawFd;

/// Exit status when the program does not exist, as shells use it.
pub(super) const NOT_FOUND: u8 = 127;
/// Exit status when the program exists and cannot be executed.
pub(super) const NOT_EXECUTABLE: u8 = 126;

/// Lines that a terminal shows at once and a script sees only when the command does not run: its stdout belongs to the program
/// (command-line.md 5.2).
struct Progress {
    shown: bool,
    kept: Vec<u8>,
}

impl Progress {
    fn new() -> Self {
        Self { shown: std::io::stdout().is_terminal(), kept: Vec::new() }
    }

    fn line(&mut self, text: &str) {
        self.kept.extend_from_slice(text.as_bytes());
        self.kept.push(b'\n');
        if self.shown {
            print(std::mem::take(&mut self.kept));
        }
    }

    /// The command will not run: everything comes out.
    fn flush(&mut self) {
        print(std::mem::take(&mut self.kept));
    }
}

pub(super) fn command(client: &Client, args: &AcquireArgs, argv: &[Vec<u8>], signs: Signs) -> u8 {
    const ACTION: &str = "command";
    if args.resources.is_empty() {
        note(ACTION, "no resource given (-r before -c), so the program runs without a lease");
    }
    let mut progress = Progress::new();
    progress.line("register");
    let mut registered = match client.register() {
        Ok(registered) => registered,
        Err(error) => {
            progress.line(&format!("register done {}", error.result_code()));
            progress.flush();
            explain(ACTION, &resources(&args.resources), &error);
            note(ACTION, "the command was not run");
            return FAILURE;
        }
    };
    let fd = registered.as_raw_fd();
    progress.line(&format!("register done {fd}"));
    progress.line(&format!("acquire fd {fd}"));
    let mut waiting = Waiting::new(client, &args.resources);
    let outcome = wire_resources(args).and_then(|resources| {
        let ask = || registered.acquire(acquire_flags(args), &resources, None);
        show(signs, ACTION, move |passed| waiting.tell(passed), ask)
    });
    progress.line(&format!("acquire done {}", result_of(&outcome)));
    if let Err(error) = outcome {
        progress.flush();
        explain(ACTION, &resources(&args.resources), &error);
        explain_refusal(client, ACTION, &args.resources, &error);
        return FAILURE;
    }
    let Some((program, arguments)) = argv.split_first() else {
        // Without a program the leases are held until a signal ends this process.
        note(ACTION, "no program given (-c): the leases are held until this process is ended");
        loop {
            nix::unistd::pause();
        }
    };
    let error = run_in_place(program, arguments);
    progress.flush();
    print_error(format!("execv failed: {}\n", reason(&error)));
    let program = String::from_utf8_lossy(program);
    let next = "check that it exists here and may be executed; without a slash it is looked for in this directory, not in PATH";
    note(ACTION, &format!("next: {program:?} was not run: {next}"));
    drop(registered);
    if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Replaces this process. Returns only if that fails. Not by the standard library, which would change what becomes of SIGPIPE, and of blocked signals.
fn run_in_place(program: &[u8], arguments: &[Vec<u8>]) -> std::io::Error {
    // A name without a slash is looked for in the working directory, not in PATH: which program runs under a lease must not
    // depend on the environment.
    let mut path = if program.contains(&b'/') { Vec::new() } else { b"./".to_vec() };
    path.extend_from_slice(program);
    let words = std::iter::once(program).chain(arguments.iter().map(Vec::as_slice));
    let made = words.map(CString::new).collect::<Result<Vec<_>, _>>();
    let (Ok(path), Ok(words)) = (CString::new(path), made) else {
        return std::io::ErrorKind::InvalidInput.into();
    };
    sigpipe::restore();
    let Err(errno) = execv(&path, &words);
    sigpipe::ignore();
    errno.into()
}

/// The system's text for an error, without the number that the standard library appends.
fn reason(error: &std::io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), system_text)
}
