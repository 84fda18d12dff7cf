//! The pretended watchdog devices (`shim/watchdog.c`): what they are like, what was done to them, and
//! when the hardware would have reset the host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::bounded;
use crate::program::compiled;
use crate::wdmd::SOON;

const SHIM_SOURCE: &str = include_str!("../shim/watchdog.c");

/// The timeout a pretended driver starts with, in seconds.
pub const DRIVER_DEFAULT: u64 = 30;

/// `CLOCK_MONOTONIC`, the clock of everything about wdmd.
///
/// # Panics
/// When the clock cannot be read.
#[must_use]
pub fn now() -> Duration {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap_or_else(|error| panic!("no clock: {error}"));
    Duration::from(now)
}

/// Whole seconds of [`now`], as clients give them to wdmd.
#[must_use]
pub fn now_seconds() -> u64 {
    now().as_secs()
}

/// The shim as a shared object, compiled by the first case that asks.
///
/// # Panics
/// When `cc` is missing or does not compile it.
#[must_use]
pub fn shim() -> &'static Path {
    static SHIM: OnceLock<PathBuf> = OnceLock::new();
    SHIM.get_or_init(|| compiled("watchdog", SHIM_SOURCE))
}

/// The devices of one pretended machine.
#[derive(Debug)]
pub struct Devices {
    dir: PathBuf,
}

impl Devices {
    /// No devices yet, in `dir`, which exists.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The directory the shim works in.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Adds a device with a driver that can do everything.
    ///
    /// # Panics
    /// When files cannot be written.
    pub fn add(&self, name: &str) {
        let dir = self.dir.join(name);
        fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        self.write(name, "timeout", &format!("{DRIVER_DEFAULT}\n"));
        self.write(name, "identity", "pretended\n");
        let number = name.strip_prefix("watchdog").filter(|number| !number.is_empty());
        self.write(name, "dev", &number.map_or("10:130\n".to_owned(), |number| format!("246:{number}\n")));
        self.write(name, "nowayout", "0\n");
    }

    /// Makes `alias` another name of `device`, as `/dev/watchdog` is of `/dev/watchdog0`.
    ///
    /// # Panics
    /// When the link cannot be made.
    pub fn alias(&self, alias: &str, device: &str) {
        symlink(device, self.dir.join(alias)).unwrap_or_else(|error| panic!("{alias}: {error}"));
    }

    /// Takes a device away.
    ///
    /// # Panics
    /// When its directory cannot be removed.
    pub fn remove(&self, name: &str) {
        fs::remove_dir_all(self.dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Writes a file of the device: `identity`, `nowayout`, `timeout`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, file: &str, text: &str) {
        let new = self.dir.join(format!("{name}.{file}.new"));
        fs::write(&new, text)
            .and_then(|()| fs::rename(&new, self.dir.join(name).join(file)))
            .unwrap_or_else(|error| panic!("{file} of {name}: {error}"));
    }

    /// What sysfs shows as the parent of a device of the watchdog core.
    ///
    /// # Panics
    /// When the link cannot be made.
    pub fn set_parent(&self, name: &str, parent: &str) {
        let parent_dir = self.dir.join("parents").join(parent);
        let link = self.dir.join(name).join("device");
        let _ = fs::remove_file(&link);
        fs::create_dir_all(&parent_dir)
            .and_then(|()| symlink(&parent_dir, &link))
            .unwrap_or_else(|error| panic!("{}: {error}", link.display()));
    }

    /// What sysfs shows as the parent of `/dev/watchdog`, the device of the misc class.
    ///
    /// # Panics
    /// When the link cannot be made.
    pub fn set_parent_of_misc(&self, parent: &str) {
        let dir = self.dir.join("misc");
        fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        self.set_parent("misc", parent);
    }

    /// A parameter of the module `ipmi_watchdog`.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn set_ipmi(&self, parameter: &str, text: &str) {
        let dir = self.dir.join("ipmi_watchdog");
        fs::create_dir_all(&dir)
            .and_then(|()| fs::write(dir.join(parameter), text))
            .unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    }

    /// From the next call on the device behaves as the lines `NAME VALUE` say (see the shim).
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn set_faults(&self, name: &str, faults: &str) {
        self.write(name, "faults", faults);
    }

    /// From now on a thread takes this long to be started. Returns when the first one is being waited for.
    ///
    /// # Panics
    /// When the file cannot be written, or no thread is started.
    pub fn delay_threads(&self, delay: Duration) {
        let path = self.dir.join("thread_delay");
        fs::write(&path, format!("{}\n", delay.as_secs()))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        bounded::wait_until("a thread to be started", SOON, || self.dir.join("thread_delayed").exists());
    }

    /// The driver's timeout now.
    ///
    /// # Panics
    /// When it is not a number.
    #[must_use]
    pub fn timeout(&self, name: &str) -> u64 {
        let path = self.dir.join(name).join("timeout");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.trim().parse().unwrap_or_else(|error| panic!("timeout {text:?}: {error}"))
    }

    /// Everything done to the devices so far.
    ///
    /// # Panics
    /// When the log has a line that is not the shim's.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let text = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        // The last line may be half written.
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(Event::parse).collect()
    }

    /// The calls so far as words, in order: `open`, `settimeout 60`, `write V`, `keepalive -5`.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.events().iter().map(Event::words).collect()
    }

    /// What the hardware of device `name` did so far. `died` is when a process that still had it open
    /// ended.
    #[must_use]
    pub fn reckoning(&self, name: &str, died: Option<Duration>) -> Reckoning {
        Reckoning::of(&self.events(), name, died)
    }
}

/// One call on a device.
#[derive(Debug, Clone)]
pub struct Event {
    /// When, on the monotonic clock.
    pub at: Duration,
    /// `watchdog0` and so on.
    pub device: String,
    /// `open`, `close`, `write`, `keepalive`, `settimeout`, `gettimeout`, `getsupport`, `ioctl`.
    pub call: String,
    /// The timeout asked for, `V` or `plain` for a write, else `-`.
    pub argument: String,
    /// Result, or negative errno.
    pub result: i64,
    /// The driver's timeout after the call.
    pub timeout: u64,
}

impl Event {
    fn parse(line: &str) -> Self {
        let bad = || -> ! { panic!("line of the shim's log: {line:?}") };
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at, _pid, device, call, argument, result, timeout] = words[..] else { bad() };
        let Some((seconds, nanoseconds)) = at.split_once('.') else { bad() };
        let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| bad());
        Self {
            at: Duration::from_secs(number(seconds)) + Duration::from_nanos(number(nanoseconds)),
            device: device.to_owned(),
            call: call.to_owned(),
            argument: argument.to_owned(),
            result: result.parse().unwrap_or_else(|_| bad()),
            timeout: number(timeout),
        }
    }

    fn words(&self) -> String {
        let mut words = self.call.clone();
        if matches!(self.call.as_str(), "settimeout" | "write" | "ioctl") {
            words = format!("{words} {}", self.argument);
        }
        if self.result < 0 { format!("{words} {}", self.result) } else { words }
    }

    /// Whether the call succeeded.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.result >= 0
    }
}

/// What the hardware does with a series of calls (wdmd.md 4.1).
#[derive(Debug, Clone, Default)]
pub struct Reckoning {
    /// Everything that started the timer again.
    pub pings: Vec<Duration>,
    /// When the timer runs out if nothing more happens (or ran out already); none: it does not run.
    pub fires: Option<Duration>,
    /// How often it was closed without being disarmed.
    pub unclean_closes: usize,
}

impl Reckoning {
    /// Calls after the reset are not looked at: they would not have happened. After a `V` that failed the worst is taken for what came: an
    /// orderly close left the device running, a death stopped it.
    fn of(events: &[Event], device: &str, died: Option<Duration>) -> Self {
        let mut this = Self::default();
        let mut open = false;
        let mut magic = false;
        let mut in_doubt = false;
        for event in events.iter().filter(|event| event.device == device) {
            if this.fires.is_some_and(|fires| event.at > fires) {
                return this;
            }
            if !event.ok() {
                // The kernel notes a `V` before it pings, and may or may not be able to stop such a device.
                in_doubt |= event.call == "write" && event.argument == "V";
                continue;
            }
            let mut ping = true;
            match event.call.as_str() {
                "open" => (open, magic, in_doubt) = (true, false, false),
                "write" => (magic, in_doubt) = (event.argument == "V", false),
                "close" => {
                    open = false;
                    if magic {
                        ping = false;
                        this.fires = None;
                    } else {
                        this.unclean_closes += 1;
                    }
                }
                "keepalive" | "settimeout" => {}
                _ => ping = false,
            }
            if ping {
                this.ping(event.at, event.timeout);
            }
        }
        if let (Some(died), true) = (died, open) {
            if this.fires.is_none_or(|fires| died <= fires) && (magic || in_doubt) {
                this.fires = None;
            } else if this.fires.is_none_or(|fires| died <= fires) {
                let timeout = events.last().map_or(0, |event| event.timeout);
                this.ping(died, timeout);
            }
        }
        this
    }

    fn ping(&mut self, at: Duration, timeout: u64) {
        self.pings.push(at);
        self.fires = Some(at + Duration::from_secs(timeout));
    }

    /// The last ping.
    ///
    /// # Panics
    /// When there was none.
    #[must_use]
    pub fn last_ping(&self) -> Duration {
        *self.pings.last().unwrap_or_else(|| panic!("the device was never pinged"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn reckoning(log: &str, died: Option<u64>) -> (Vec<u64>, Option<Duration>) {
        let events: Vec<Event> = log.lines().map(Event::parse).collect();
        let reckoning = Reckoning::of(&events, "watchdog0", died.map(seconds));
        (reckoning.pings.iter().map(Duration::as_secs).collect(), reckoning.fires)
    }

    const ARMED: &str =
        "1.000000000 9 watchdog0 open cloexec 4 30\n2.000000000 9 watchdog0 settimeout 10 0 10\n";

    #[test]
    fn an_armed_device_fires_its_timeout_after_the_last_ping() {
        assert_eq!(reckoning("", None), (vec![], None));
        assert_eq!(reckoning(ARMED, None), (vec![1, 2], Some(seconds(12))));
        let pinged = format!(
            "{ARMED}5.000000000 9 watchdog0 keepalive - 0 10\n6.000000000 9 watchdog0 write plain 1 10"
        );
        assert_eq!(reckoning(&pinged, None), (vec![1, 2, 5, 6], Some(seconds(16))));
        let other = format!(
            "{ARMED}5.000000000 9 watchdog1 keepalive - 0 10\n6.000000000 9 watchdog0 keepalive - -5 10"
        );
        assert_eq!(reckoning(&other, None).1, Some(seconds(12)), "another device; a ping that failed");
    }

    #[test]
    fn only_a_close_after_the_magic_write_disarms() {
        let magic =
            format!("{ARMED}5.000000000 9 watchdog0 write V 1 10\n6.000000000 9 watchdog0 close - 0 10\n");
        assert_eq!(reckoning(&magic, None), (vec![1, 2, 5], None));
        assert_eq!(reckoning(&magic, Some(8)), (vec![1, 2, 5], None), "closed before the death");
        let unclean = format!("{ARMED}6.000000000 9 watchdog0 close - 0 10\n");
        assert_eq!(reckoning(&unclean, None), (vec![1, 2, 6], Some(seconds(16))));
        let taken_back =
            magic.replace("write V 1 10", "write V 1 10\n5.500000000 9 watchdog0 write plain 1 10");
        assert_eq!(reckoning(&taken_back, None).1, Some(seconds(16)));
    }

    #[test]
    fn a_death_with_the_device_open_is_a_ping() {
        assert_eq!(reckoning(ARMED, Some(7)), (vec![1, 2, 7], Some(seconds(17))));
    }

    #[test]
    fn a_magic_write_counts_at_a_death_too_even_if_it_failed() {
        for result in ["1", "-5"] {
            let magic = format!("{ARMED}5.000000000 9 watchdog0 write V {result} 10");
            assert_eq!(reckoning(&magic, Some(7)).1, None);
            let kept_alive = format!("{magic}\n6.000000000 9 watchdog0 keepalive - 0 10");
            assert_eq!(reckoning(&kept_alive, Some(7)).1, None);
            let closed = format!("{magic}\n6.000000000 9 watchdog0 close - 0 10");
            assert_eq!(reckoning(&closed, None).1.is_some(), result == "-5");
            let taken_back = format!("{magic}\n6.000000000 9 watchdog0 write plain 1 10");
            assert_eq!(reckoning(&taken_back, Some(7)).1, Some(seconds(17)));
        }
    }

    #[test]
    fn nothing_saves_a_device_that_has_fired() {
        let late = format!("{ARMED}13.000000000 9 watchdog0 keepalive - 0 10");
        assert_eq!(reckoning(&late, None), (vec![1, 2], Some(seconds(12))));
        assert_eq!(reckoning(ARMED, Some(13)), (vec![1, 2], Some(seconds(12))));
    }
}
