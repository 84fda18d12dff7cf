//! `add_lockspace`, `inq_lockspace`, `rem_lockspace`, `set_config` (command-line.md 7.11 to 7.13, 7.19).

use super::convert::{lockspace, name};
use super::done;
use crate::cli::command::DEFAULT_IO_TIMEOUT;
use crate::output::{note, print};
use crate::progress::join::Join;
use crate::progress::{Signs, show, so_far};
use crate::subject;
use sanlock_client::wire::StateType;
use sanlock_client::wire::flags::{AddFlags, ConfigCommand, InqFlags, RemFlags};
use sanlock_client::{Client, ClientError};
use sanlock_daemon::config::{Config, Environment, Overrides};
use sanlock_lease::name::Name;
use sanlock_lease::text::LockspaceSpec;
use sanlock_lease::timing::IoTimeout;

/// The default io timeout is not sent: the daemon may have another default (command-line.md 7.11).
pub(super) fn add(client: &Client, spec: &LockspaceSpec, said: Option<u32>, signs: Signs) -> u8 {
    let action = join_word(said);
    let sent = said.filter(|&seconds| seconds != DEFAULT_IO_TIMEOUT).unwrap_or(0);
    print(if sent == 0 { format!("{action}\n") } else { format!("{action} {sent}\n") });
    let outcome = lockspace(spec).map_err(ClientError::from).and_then(|lockspace| {
        let ask = || client.add_lockspace_timeout(&lockspace, AddFlags::empty(), sent);
        if !signs.any() {
            return ask();
        }
        let settings = Config::load(&Overrides::default(), &Environment::of_process());
        let io_timeout = IoTimeout::new(sent).unwrap_or(settings.io_timeout);
        let us = client.status(StateType::Daemon as u32).ok().and_then(|records| Some(records.first()?.name));
        let us = us.as_ref().map(|name| name.name_bytes());
        let join = Join::look(spec, io_timeout, settings.fire, us);
        show(signs, action, move |passed| join.tell(passed), ask)
    });
    if outcome.is_ok() && sent == 0 && said.is_some() {
        tell_io_timeout(client, action, spec);
    }
    done(action, &subject::lockspace(spec), &outcome)
}

/// The default is not sent where it was asked for, either: who asked for it is told of another one.
fn tell_io_timeout(client: &Client, action: &str, spec: &LockspaceSpec) {
    let Ok((seconds, _)) = client.renewal(name(spec.name)) else { return };
    if seconds != DEFAULT_IO_TIMEOUT {
        note(
            action,
            &format!(
                "{}: joined with an io timeout of {seconds} s, not {DEFAULT_IO_TIMEOUT}: that number means the daemon's own, which is \
                 io_timeout in its sanlock.conf; to have {DEFAULT_IO_TIMEOUT} s, change it there",
                subject::lockspace(spec)
            ),
        );
    }
}

/// What the action is called in its output.
pub(super) fn join_word(io_timeout: Option<u32>) -> &'static str {
    if io_timeout.is_none_or(|seconds| seconds == DEFAULT_IO_TIMEOUT) {
        "add_lockspace"
    } else {
        "add_lockspace_timeout"
    }
}

pub(super) fn inquire(client: &Client, spec: &LockspaceSpec) -> u8 {
    const ACTION: &str = "inq_lockspace";
    print(format!("{ACTION}\n"));
    let outcome = lockspace(spec)
        .map_err(ClientError::from)
        .and_then(|lockspace| client.inq_lockspace(&lockspace, InqFlags::empty()));
    done(ACTION, &subject::lockspace(spec), &outcome)
}

pub(super) fn remove(client: &Client, spec: &LockspaceSpec, signs: Signs) -> u8 {
    const ACTION: &str = "rem_lockspace";
    print(format!("{ACTION}\n"));
    let what = "waiting until the processes that use the lockspace are gone and it is left";
    let outcome = lockspace(spec).map_err(ClientError::from).and_then(|lockspace| {
        show(signs, ACTION, so_far(what), || client.rem_lockspace(&lockspace, RemFlags::empty()))
    });
    done(ACTION, &subject::lockspace(spec), &outcome)
}

pub(super) fn set_config(client: &Client, lockspace: Name, config: Option<ConfigCommand>) -> u8 {
    const ACTION: &str = "set_config";
    let number = config.map_or(0, u32::from);
    print(
        [format!("{ACTION} ").as_bytes(), lockspace.as_bytes(), format!(" {number}\n").as_bytes()].concat(),
    );
    let outcome = client.set_config(name(lockspace), number);
    done(ACTION, &subject::lockspace_name(lockspace), &outcome)
}
