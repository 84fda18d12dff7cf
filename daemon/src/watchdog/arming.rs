//! What has to wait for an answer of wdmd: asking for a device, and giving it the first expiry of a lockspace.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sanlock_lease::timing::WatchdogFire;
use sanlock_wdmd::client::{ClientError, Connection, REPLY_WITHIN, SEND_WITHIN};
use sanlock_wdmd::decide::test_interval;

use super::Times;
use super::withdrawn::Withdrawn;

/// Why a connection could not be armed, and those on which an expiry was taken back again.
#[derive(Debug)]
pub(crate) struct Unarmed {
    pub(super) text: String,
    pub(super) withdrawn: Vec<Withdrawn>,
}

/// Whether a device can be had that fires after this time: wdmd's test interval. The device is not left open for it.
pub(super) fn ask(socket: &Path, fire: WatchdogFire) -> Result<u32, ClientError> {
    let mut connection = Connection::connect(socket, REPLY_WITHIN)?;
    let seconds = u32::try_from(fire.secs()).unwrap_or(u32::MAX);
    let opened = connection.open_watchdog(seconds, REPLY_WITHIN)?;
    // While another client recovers wdmd tests every second; what counts is how often it does so else.
    Ok(opened.status.test_interval.max(test_interval(seconds)))
}

/// What wdmd is to be told.
pub(super) struct Wish {
    pub(super) name: String,
    pub(super) fire: WatchdogFire,
    pub(super) times: Times,
    /// How long the machine has slept.
    pub(super) asleep_ms: fn() -> u64,
    pub(super) cancelled: Arc<AtomicBool>,
    /// How long each answer may take.
    pub(super) within: Duration,
}

/// Gives wdmd an expiry and has it confirmed: on a connection that was kept, else on a new one.
pub(super) fn arm(socket: &Path, kept: Option<Connection>, wish: &Wish) -> Result<Connection, Unarmed> {
    let mut withdrawn = Vec::new();
    if let Some(connection) = kept {
        match watch(connection, wish, true) {
            Ok(armed) => return Ok(armed),
            // wdmd may have been restarted since.
            Err((_, before)) => withdrawn.extend(before),
        }
    }
    let text = match Connection::connect(socket, wish.within) {
        Ok(connection) => match watch(connection, wish, false) {
            Ok(armed) => return Ok(armed),
            Err((text, here)) => {
                withdrawn.extend(here);
                text
            }
        },
        Err(error) => error.to_string(),
    };
    Err(Unarmed { text, withdrawn })
}

/// After a failure with the connection, if an expiry may have been given on it, which was taken back then: here, or before (`used`).
fn watch(
    mut connection: Connection,
    wish: &Wish,
    used: bool,
) -> Result<Connection, (String, Option<Withdrawn>)> {
    let seconds = u32::try_from(wish.fire.secs()).unwrap_or(u32::MAX);
    if let Err(error) = connection.open_watchdog(seconds, wish.within) {
        // Without an answer wdmd may not even have read what was said before.
        let unread = used && matches!(error, ClientError::Timeout { .. } | ClientError::Unsent { .. });
        return Err((error.to_string(), unread.then_some(Withdrawn::told(connection))));
    }
    if wish.cancelled.load(Ordering::SeqCst) {
        return Err(("it is not wanted any more".to_owned(), None));
    }
    let mut watch = || {
        connection.register(&wish.name)?;
        connection.refcount_set()?;
        let times = wish.times.behind_by((wish.asleep_ms)());
        connection.test_live(times.renewal, times.expire)?;
        connection.status(wish.within)
    };
    let failed = match watch() {
        Ok(status) if u64::from(status.fire_timeout) == wish.fire.secs() => return Ok(connection),
        Ok(status) => {
            format!("wdmd reports a fire timeout of {} s, expected {seconds} s", status.fire_timeout)
        }
        Err(error) => error.to_string(),
    };
    // Nothing may stay behind that nobody would move. What cannot be sent is owed; any other error means that wdmd is gone and has no use for it.
    Err((failed, Some(Withdrawn::take_back(connection, SEND_WITHIN).0)))
}
