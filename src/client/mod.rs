//! Requests to the daemon: one file per group of actions, each printing what the original prints.
//!
//! Results go to stdout in the original's words; whatever helps a person to understand a failure goes to stderr, so that
//! scripts which parse stdout see nothing new (command-line.md 18.2 #20 to #25).

mod command;
mod convert;
mod index;
mod info;
mod lease;
mod lockspace;
mod notify;
mod owner;
mod progress;
mod status;
mod storage;

use crate::cli::command::ClientAction;
use crate::output::{FAILURE, SUCCESS, describe, note, print, status_of};
use sanlock_client::wire::types::HostEvent;
use sanlock_client::{Client, ClientError};

/// Carries out an action and returns the exit status.
pub(crate) fn run(action: ClientAction) -> u8 {
    let client = Client::new();
    match action {
        ClientAction::Status { order, debug } => status::status(&client, order, debug),
        ClientAction::HostStatus { lockspace, debug } => status::host_status(&client, lockspace, debug),
        ClientAction::Gets { hosts } => info::gets(&client, hosts),
        ClientAction::Renewal { lockspace } => info::renewal(&client, lockspace),
        ClientAction::LogDump => info::log_dump(&client),
        ClientAction::Version => info::version(&client),
        ClientAction::Shutdown { force, wait } => info::shutdown(&client, force, wait),
        ClientAction::Init { target, sizes } => storage::init(&client, &target, sizes),
        ClientAction::Read { target, sizes, owners, debug } => {
            storage::read(&client, &target, sizes, owners, debug)
        }
        ClientAction::Index { action, args } => index::index(&client, action, &args),
        ClientAction::Align { disk } => storage::align(&client, &disk),
        ClientAction::AddLockspace { spec, io_timeout } => lockspace::add(&client, &spec, io_timeout),
        ClientAction::InqLockspace { spec } => lockspace::inquire(&client, &spec),
        ClientAction::RemLockspace { spec } => lockspace::remove(&client, &spec),
        ClientAction::SetConfig { lockspace, config } => lockspace::set_config(&client, lockspace, config),
        ClientAction::Request { resource, force_mode } => {
            notify::request(&client, resource.as_ref(), force_mode)
        }
        ClientAction::Examine { resource, lockspace } => {
            notify::examine(&client, resource.as_ref(), lockspace.as_ref())
        }
        ClientAction::SetEvent { lockspace, host_id, generation, event, data } => {
            let event = HostEvent {
                host_id: host_id.into(),
                generation: generation.into(),
                event: event.into(),
                data: data.into(),
            };
            notify::set_event(&client, lockspace, event)
        }
        ClientAction::Command { acquire, argv } => command::command(&client, &acquire, &argv),
        ClientAction::Acquire { pid, acquire } => lease::acquire(&client, pid, &acquire),
        ClientAction::Release { pid, resources, lockspace, all, orphan } => {
            lease::release(&client, pid, &resources, lockspace, all, orphan)
        }
        ClientAction::Convert { pid, resource } => lease::convert(&client, pid, resource.as_ref()),
        ClientAction::Inquire { pid, debug } => lease::inquire(&client, pid, debug),
    }
}

/// The number that the original would print for this outcome.
fn result_of<T>(outcome: &Result<T, ClientError>) -> i32 {
    outcome.as_ref().map_or_else(ClientError::result_code, |_| 0)
}

/// Says why something failed, in plain words.
fn explain(action: &str, error: &ClientError) {
    let command = match error {
        ClientError::Daemon { command, .. } => Some(*command),
        _ => None,
    };
    match error {
        ClientError::Daemon { .. } | ClientError::Io { .. } => {
            note(action, &describe(error.result_code(), command));
        }
        _ => note(action, &format!("{error} ({})", error.result_code())),
    }
}

/// Prints `ACTION done RESULT`, explains a failure, and gives the exit status.
fn done<T>(action: &str, outcome: &Result<T, ClientError>) -> u8 {
    let result = result_of(outcome);
    print(format!("{action} done {result}\n"));
    if let Err(error) = outcome {
        explain(action, error);
    }
    status_of(result)
}

/// For actions that print nothing on stdout when they fail.
fn silent_failure(action: &str, error: &ClientError) -> u8 {
    explain(action, error);
    FAILURE
}

/// Prints `ACTION error RESULT` and explains it.
fn failed(action: &str, error: &ClientError) -> u8 {
    print(format!("{action} error {}\n", error.result_code()));
    silent_failure(action, error)
}

/// The exit status of an action that printed what was asked for.
fn shown(text: &[u8]) -> u8 {
    print(text);
    SUCCESS
}
