//! `renewal --plot`: the renewal history of a lockspace as a picture, with the limits that matter drawn in.

mod svg;

use super::convert::name;
use super::silent_failure;
use crate::json::Text;
use crate::output::{FAILURE, SUCCESS, failure, note};
use crate::subject;
use sanlock_client::wire::code;
use sanlock_client::{Client, Renewal};
use sanlock_lease::name::Name;
use sanlock_lease::timing::IoTimeout;
use sanlock_sys::clock;
use std::path::Path;

const ACTION: &str = "renewal";

/// What is drawn.
struct History {
    /// As text.
    lockspace: String,
    io_timeout: IoTimeout,
    /// Oldest first.
    renewals: Vec<Renewal>,
    /// Monotonic seconds when the history was asked for.
    now: u64,
    /// The same moment for people.
    date: String,
}

pub(super) fn renewal(client: &Client, lockspace: Name, file: &Path) -> u8 {
    if lockspace.is_empty() {
        note(ACTION, "no lockspace given, use -s NAME");
        return FAILURE;
    }
    let object = subject::lockspace_name(lockspace);
    let (io_timeout, records) = match client.renewal(name(lockspace)) {
        Ok(reply) => reply,
        Err(error) => return silent_failure(ACTION, &object, &error),
    };
    let renewals: Vec<Renewal> = records.iter().map(Renewal::from).collect();
    if renewals.is_empty() {
        note(
            ACTION,
            &format!(
                "{object}: no renewals to draw: wait for some, or let the daemon keep a history (renewal_history_size)"
            ),
        );
        return FAILURE;
    }
    let Ok(io_timeout) = IoTimeout::new(io_timeout) else {
        note(
            ACTION,
            &format!("{object}: the daemon says an io timeout of {io_timeout} s, which no lockspace has"),
        );
        return FAILURE;
    };
    let history = History {
        lockspace: Text::from(lockspace.as_bytes()).shown(),
        io_timeout,
        renewals,
        now: clock::boottime_seconds(),
        date: clock::civil_now(false).to_string(),
    };
    match std::fs::write(file, svg::draw(&history)) {
        Ok(()) => SUCCESS,
        Err(error) => {
            let result = -error.raw_os_error().unwrap_or(-code::EIO);
            let next = Some("name a file in a directory that exists and that you may write to");
            failure(ACTION, &file.display().to_string(), &error.to_string(), result, next);
            FAILURE
        }
    }
}
