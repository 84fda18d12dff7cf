//! What the decisions are told, and what they ask for.

use super::notice::Notice;
use super::source::{Peer, SourceId};
use super::timing::DeviceTimeout;
use crate::protocol::Message;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A connection was accepted. The number must be free, see [`Machine::source`](super::Machine::source).
    Connected(SourceId, Peer),
    /// A complete message came.
    Message(SourceId, Message),
    /// The connection has ended, and every complete message before its end has been handed in.
    Ended(SourceId),
    /// The result of [`Action::Arm`].
    Armed(Armed),
    /// The result of [`Action::Ping`].
    Pinged(bool),
    /// The result of [`Action::Disarm`]: `false` leaves the device running and its file open.
    Disarmed(bool),
    /// A script has become good or bad, or is gone (`good`).
    Script {
        /// Its slot.
        slot: u8,
        /// Its state from now on.
        good: bool,
    },
    /// SIGTERM, SIGINT.
    Terminate,
    /// The end of a turn.
    Tick,
}

/// What became of the device when it was to be armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Armed {
    /// It runs, was pinged, and truly resets the host that long after a ping.
    Running {
        /// How long.
        device_timeout: DeviceTimeout,
        /// Whether it can be disarmed (not with nowayout).
        can_disarm: bool,
    },
    /// It could not be armed, and does not run.
    Failed,
    /// It could not be set up as wanted, and could not be disarmed again: it runs with this timeout.
    Stuck {
        /// When it resets the host.
        device_timeout: DeviceTimeout,
        /// Whether that is worth another try (not with nowayout).
        can_disarm: bool,
    },
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open the device (if it is not open), have it fire `device_timeout` true seconds after a ping (it may round down to
    /// [`ROUNDED_DEVICE_TIMEOUT_MIN`](super::ROUNDED_DEVICE_TIMEOUT_MIN)), and ping it. If that fails, disarm and close it.
    Arm {
        /// The agreed fire timeout, seconds; for the log.
        fire_timeout: u32,
        /// Seconds.
        device_timeout: u32,
    },
    /// Ping the device.
    Ping,
    /// Stop the device and close its file.
    Disarm,
    /// Send this to the client.
    Reply(SourceId, Message),
    /// Send the dump to the client.
    Dump(SourceId),
    /// Write this to the log.
    Log(Notice),
    /// Remove the marker and exit with 0.
    Quit,
}
