//! The log: system log, and stderr with `-D` (specification 15), written by a thread of its own, because a log that does not
//! take a line must not keep the daemon from its device. Lines that find the queue full are dropped and counted.

use nix::syslog::{Facility, LogFlags, Severity};
use sanlock_sys::clock::civil_now;
use sanlock_sys::thread;
use sanlock_wdmd::decide::Level;
use std::cell::Cell;
use std::ffi::CStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime};

/// Lines that may wait for the writer.
const QUEUE_LINES: usize = 1024;
/// How long the end waits for the last lines.
const FLUSH_WITHIN: Duration = Duration::from_secs(2);
/// Stack of the writer.
const STACK: usize = 128 * 1024;

struct Line {
    level: Level,
    text: String,
    /// The form for stderr, with time.
    stamped: Option<String>,
}

/// Where everybody in this program logs.
pub(crate) struct Log {
    sender: SyncSender<Line>,
    done: Receiver<()>,
    debug: bool,
    dropped: Cell<u64>,
}

impl Log {
    /// Starts the writer. Call it after going into the background.
    ///
    /// # Errors
    ///
    /// No thread is to be had.
    pub(crate) fn start(debug: bool) -> io::Result<Self> {
        const IDENT: Option<&CStr> = Some(c"wdmd");
        // Without /dev/log the messages go to the console.
        let _ = nix::syslog::openlog(IDENT, LogFlags::LOG_CONS | LogFlags::LOG_PID, Facility::LOG_DAEMON);
        let (sender, lines) = sync_channel::<Line>(QUEUE_LINES);
        let (ended, done) = sync_channel(1);
        thread::spawn("wdmd-log", STACK, move || {
            for line in lines {
                // A closed terminal must not end the daemon, and there is nowhere to report it.
                if let Some(stamped) = &line.stamped {
                    let _ = io::stderr().write_all(stamped.as_bytes());
                }
                let severity = match line.level {
                    Level::Debug => continue,
                    Level::Info => Severity::LOG_INFO,
                    Level::Error => Severity::LOG_ERR,
                };
                let _ = nix::syslog::syslog(severity, &line.text.as_str());
            }
            let _ = ended.send(());
        })?;
        Ok(Self { sender, done, debug, dropped: Cell::new(0) })
    }

    /// Whether debug lines go anywhere.
    pub(crate) fn debugs(&self) -> bool {
        self.debug
    }

    pub(crate) fn error(&self, text: impl Display) {
        self.write(Level::Error, &text);
    }

    pub(crate) fn info(&self, text: impl Display) {
        self.write(Level::Info, &text);
    }

    pub(crate) fn debug(&self, text: impl Display) {
        self.write(Level::Debug, &text);
    }

    pub(crate) fn write(&self, level: Level, text: &dyn Display) {
        if level == Level::Debug && !self.debug {
            return;
        }
        let dropped = self.dropped.take();
        if dropped > 0 {
            self.queue(
                Level::Error,
                format!("{dropped} lines lost: the system log does not keep up"),
                dropped,
            );
        }
        self.queue(level, text.to_string(), 1);
    }

    fn queue(&self, level: Level, text: String, stands_for: u64) {
        let stamped = self.debug.then(|| {
            let unix =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
            format!("{unix} {}  {text}\n", civil_now(false))
        });
        match self.sender.try_send(Line { level, text, stamped }) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => self.dropped.set(self.dropped.get() + stands_for),
        }
    }

    /// Waits until what was logged is written, for a while.
    pub(crate) fn finish(self) {
        drop(self.sender);
        let _ = self.done.recv_timeout(FLUSH_WITHIN);
    }
}
