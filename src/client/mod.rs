//! Requests to the daemon: one file per group of actions, each printing what the original prints.
//!
//! Results go to stdout in the original's words; whatever helps a person to understand a failure goes to stderr, so that
//! scripts which parse stdout see nothing new (command-line.md 18.2 #20 to #25).

mod command;
mod convert;
mod explain;
mod index;
mod info;
mod json;
mod lease;
mod lockspace;
mod notify;
mod owner;
mod paths;
mod plot;
mod status;
mod storage;

use crate::cli::command::ClientAction;
use crate::output::{FAILURE, SUCCESS, note, print, status_of};
use crate::progress::Signs;
use explain::{explain, reason};
use sanlock_client::wire::types::HostEvent;
use sanlock_client::wire::{Host, Name, Resource, ResourceSpec};
use sanlock_client::{Client, ClientError};
use sanlock_lease::text::DiskSpec;

/// Carries out an action and returns the exit status. `json`: what is shown is printed as an object, by the actions that can.
/// `signs`: how it says what it waits for.
pub(crate) fn run(action: ClientAction, json: bool, signs: Signs) -> u8 {
    let client = Client::new();
    if json {
        if let Some(status) = json::run(&client, &action) {
            return status;
        }
    }
    let relative = paths::Relative::of(&action);
    let status = carry_out(&client, action, signs);
    relative.tell(status);
    status
}

fn carry_out(client: &Client, action: ClientAction, signs: Signs) -> u8 {
    match action {
        ClientAction::Status { order, debug } => status::status(client, order, debug),
        ClientAction::HostStatus { lockspace, debug } => status::host_status(client, lockspace, debug),
        ClientAction::Gets { hosts } => info::gets(client, hosts),
        ClientAction::Renewal { lockspace, plot: None } => info::renewal(client, lockspace),
        ClientAction::Renewal { lockspace, plot: Some(file) } => plot::renewal(client, lockspace, &file),
        ClientAction::LogDump => info::log_dump(client),
        ClientAction::Version => info::version(client),
        ClientAction::Shutdown { force, wait } => info::shutdown(client, force, wait, signs),
        ClientAction::Init { target, sizes } => storage::init(client, &target, sizes, signs),
        ClientAction::Read { target, sizes, owners, debug } => {
            storage::read(client, &target, sizes, owners, debug)
        }
        ClientAction::Index { action, args } => index::index(client, action, &args),
        ClientAction::Align { disk } => storage::align(client, &disk),
        ClientAction::AddLockspace { spec, io_timeout } => lockspace::add(client, &spec, io_timeout, signs),
        ClientAction::InqLockspace { spec } => lockspace::inquire(client, &spec),
        ClientAction::RemLockspace { spec } => lockspace::remove(client, &spec, signs),
        ClientAction::SetConfig { lockspace, config } => lockspace::set_config(client, lockspace, config),
        ClientAction::Request { resource, force_mode } => {
            notify::request(client, resource.as_ref(), force_mode)
        }
        ClientAction::Examine { target } => notify::examine(client, &target),
        ClientAction::SetEvent { lockspace, host_id, generation, event, data } => {
            let event = HostEvent {
                host_id: host_id.into(),
                generation: generation.into(),
                event: event.into(),
                data: data.into(),
            };
            notify::set_event(client, lockspace, event)
        }
        ClientAction::Command { acquire, argv } => command::command(client, &acquire, &argv, signs),
        ClientAction::Acquire { pid, acquire } => lease::acquire(client, pid, &acquire, signs),
        ClientAction::Release { pid, resources, lockspace, all, orphan } => {
            lease::release(client, pid, &resources, lockspace, all, orphan)
        }
        ClientAction::Convert { pid, resource } => lease::convert(client, pid, resource.as_ref()),
        ClientAction::Inquire { pid, debug } => lease::inquire(client, pid, debug),
    }
}

/// A name as it travels to the daemon.
pub(crate) fn wire_name(name: sanlock_lease::name::Name) -> Name {
    convert::name(name)
}

/// A resource and who owns it, read by the daemon.
///
/// # Errors
/// A path that is too long, or the daemon's refusal.
pub(crate) fn owners(
    client: &Client,
    lockspace: sanlock_lease::name::Name,
    name: sanlock_lease::name::Name,
    disks: &[DiskSpec],
) -> Result<(Resource, Vec<Host>), ClientError> {
    let disks = disks.iter().map(convert::disk).collect::<Result<Vec<_>, _>>()?;
    let names = Resource::new(convert::name(lockspace), convert::name(name));
    let asked = ResourceSpec::new(names, disks).map_err(|_| ClientError::NoDisks)?;
    client.read_resource_owners(&asked)
}

/// The number that the original would print for this outcome.
fn result_of<T>(outcome: &Result<T, ClientError>) -> i32 {
    outcome.as_ref().map_or_else(ClientError::result_code, |_| 0)
}

/// Prints `ACTION done RESULT`, explains a failure, and gives the exit status.
fn done<T>(action: &str, object: &str, outcome: &Result<T, ClientError>) -> u8 {
    let result = result_of(outcome);
    print(format!("{action} done {result}\n"));
    if let Err(error) = outcome {
        explain(action, object, error);
    }
    status_of(result)
}

/// Says that an answer of which some was printed had more to come.
fn tell_cut(action: &str, cut: Option<&ClientError>) {
    match cut {
        None => {}
        Some(ClientError::Daemon { .. }) => {
            note(action, "the daemon has more than its answer holds, so these are not all")
        }
        Some(error) => note(action, &format!("the answer broke off, so this is not all: {}", reason(error))),
    }
}

/// For actions that print nothing on stdout when they fail.
fn silent_failure(action: &str, object: &str, error: &ClientError) -> u8 {
    explain(action, object, error);
    FAILURE
}

/// Prints `ACTION error RESULT` and explains it.
fn failed(action: &str, object: &str, error: &ClientError) -> u8 {
    print(format!("{action} error {}\n", error.result_code()));
    silent_failure(action, object, error)
}

/// The exit status of an action that printed what was asked for.
fn shown(text: &[u8]) -> u8 {
    print(text);
    SUCCESS
}
