//! The watchdog device: choosing it, arming, pinging, disarming (specification 4).
//!
//! Invariants: the file is dropped only after a successful `V`, or when it is none of a watchdog; only what the driver confirmed
//! counts as a ping.

use crate::log::Log;
use crate::sysfs::{self, Described};
use sanlock_sys::watchdog::{self, Support};
use sanlock_wdmd::decide::{Armed, Time, Timing};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Tried in this order when none was named.
const CANDIDATES: [&str; 3] = ["/dev/watchdog0", "/dev/watchdog1", "/dev/watchdog"];
/// This driver resets the host at the second expiry: the true time is twice what it reports (4.7).
const FIRES_AT_SECOND_EXPIRY: &str = "iTCO_wdt";
/// A repeated device error is logged again after this, milliseconds.
const REPEAT_ERROR_MS: i64 = 10_000;

/// errno of an error, as log lines show it; 0 if it is not one of the system.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// An error as lines for people show it: its number, which is all that 3.8.5 says, and what it means.
pub(crate) fn told(error: &io::Error) -> String {
    format!("{}: {}", errno(error), reason(error))
}

/// What an error means, in the words of the C library, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// The devices to try.
///
/// # Errors
///
/// The device named does not exist; the text is for the log.
pub(crate) fn candidates(named: Option<&OsStr>) -> Result<Vec<PathBuf>, String> {
    match named {
        Some(named) => Ok(vec![sysfs::resolve(named)?]),
        None => Ok(CANDIDATES.iter().map(PathBuf::from).collect()),
    }
}

/// Opens the device, which starts its timer.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

/// An open device. Dropping it closes the file, which pings the device and leaves it running unless [`Handle::magic`] came last.
pub(crate) trait Handle {
    fn support(&self) -> io::Result<Support>;
    /// Seconds, as the driver counts.
    fn timeout(&self) -> io::Result<u32>;
    /// Seconds, as the driver counts; what it made of them.
    fn set_timeout(&self, seconds: u32) -> io::Result<u32>;
    fn keepalive(&self) -> io::Result<()>;
    /// Lets the next close stop the device.
    fn magic(&mut self) -> io::Result<()>;
}

impl Handle for File {
    fn support(&self) -> io::Result<Support> {
        watchdog::support(self.as_fd())
    }

    fn timeout(&self) -> io::Result<u32> {
        watchdog::timeout(self.as_fd())
    }

    fn set_timeout(&self, seconds: u32) -> io::Result<u32> {
        watchdog::set_timeout(self.as_fd(), seconds)
    }

    fn keepalive(&self) -> io::Result<()> {
        watchdog::keepalive(self.as_fd())
    }

    fn magic(&mut self) -> io::Result<()> {
        self.write_all(b"V")
    }
}

/// An open device, or one pretended by a test.
pub(crate) type Opened = Box<dyn Handle>;

/// Stops the device and closes its file. On failure the file comes back: it must stay open, or the device fires.
fn disarm(mut file: Opened) -> Result<(), (Opened, io::Error)> {
    match file.magic() {
        Ok(()) => Ok(()),
        Err(error) => Err((file, error)),
    }
}

/// The text that explains a device in use, or nothing.
pub(crate) fn held_by(path: &Path, error: &io::Error) -> String {
    if error.raw_os_error() != Some(nix::libc::EBUSY) {
        return String::new();
    }
    let holders = sysfs::holders(path);
    if holders.is_empty() {
        ", in use by a process that cannot be seen".to_owned()
    } else {
        format!(", in use by process {}: only one can own a watchdog device", holders.join(", "))
    }
}

/// Why a driver cannot be used, if so.
pub(crate) fn unfit(support: &Support) -> Option<&'static str> {
    if !support.magic_close() {
        Some("no magic close: the device would stop when wdmd dies")
    } else if !support.keepalive() {
        Some("no keepalive")
    } else if !support.set_timeout() {
        Some("its timeout cannot be set")
    } else {
        None
    }
}

/// The true timeout of a device in terms of what its driver reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Factor(u32);

impl Factor {
    pub(crate) fn of(identity: &str) -> Self {
        Self(if identity == FIRES_AT_SECOND_EXPIRY { 2 } else { 1 })
    }

    /// The driver counts otherwise than the clock.
    pub(crate) const fn is_odd(self) -> bool {
        self.0 != 1
    }

    pub(crate) const fn to_driver(self, seconds: u32) -> u32 {
        seconds / self.0
    }

    pub(crate) const fn to_true(self, reported: u32) -> u32 {
        reported.saturating_mul(self.0)
    }
}

/// The chosen device.
pub(crate) struct Device {
    path: PathBuf,
    described: Described,
    /// From the driver itself, when it was asked.
    identity: Option<String>,
    file: Option<Opened>,
    opener: fn(&Path) -> io::Result<Opened>,
    /// The last error of a repeated operation and when it was logged.
    logged: Option<(i32, Time)>,
}

impl Device {
    /// The first device that can be used. It is opened and closed again to see that, unless that could not be undone. One that will
    /// not stop is chosen, usable or not, and stays open, see [`Self::left_running`]: no other one can keep it from resetting this
    /// host.
    pub(crate) fn choose(named: Option<&OsStr>, log: &Log) -> Option<Self> {
        let paths = candidates(named).map_err(|text| log.error(text)).ok()?;
        paths.into_iter().find_map(|path| Self::check(path, named.is_some(), log))
    }

    fn new(path: PathBuf, described: Described, opener: fn(&Path) -> io::Result<Opened>) -> Self {
        Self { path, described, identity: None, file: None, opener, logged: None }
    }

    fn check(path: PathBuf, was_named: bool, log: &Log) -> Option<Self> {
        let shown = path.display();
        if let Err(error) = fs::metadata(&path) {
            if was_named {
                log.error(format_args!("stat {shown} error {}", told(&error)));
            }
            return None;
        }
        let described = Described::of(&path);
        let device = Self::new(path.clone(), described, |path| Ok(Box::new(open(path)?)));
        if device.described.no_way_out == Some(true) {
            log.info(format_args!(
                "{shown} cannot be stopped once it is open (nowayout): it is left alone until a client needs it, and kept \
                 alive from then on"
            ));
            return Some(device);
        }
        device.look(log)
    }

    /// Opens the device to see whether it can be used.
    fn look(mut self, log: &Log) -> Option<Self> {
        let file = self.open_logged(log)?;
        let usable = self.inspect(file.as_ref(), log).is_some();
        let Err((file, error)) = disarm(file) else { return usable.then_some(self) };
        let no_watchdog = file.support().is_err_and(|error| error.raw_os_error() == Some(nix::libc::ENOTTY));
        if no_watchdog {
            return None;
        }
        log.error(format_args!(
            "{} disarm write error {}: it runs, and would reset this host; it is kept open and alive until it can be stopped",
            self.path.display(),
            told(&error)
        ));
        self.file = Some(file);
        Some(self)
    }

    /// The true timeout, in seconds, of a device that could not be stopped after a look at it.
    pub(crate) fn left_running(&self) -> Option<u32> {
        self.file.as_deref().map(|file| self.true_timeout(file))
    }

    /// Seconds; the shortest there is if the driver does not tell.
    fn true_timeout(&self, file: &dyn Handle) -> u32 {
        Factor::of(self.identity()).to_true(file.timeout().unwrap_or(1))
    }

    /// The driver's name for it, `unknown` if it has none.
    pub(crate) fn identity(&self) -> &str {
        self.described.identity.as_deref().or(self.identity.as_deref()).unwrap_or("unknown")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn open_logged(&self, log: &Log) -> Option<Opened> {
        let path = self.path.display();
        let failed = |error: io::Error| {
            log.error(format_args!("open {path} error {}{}", told(&error), held_by(&self.path, &error)));
        };
        (self.opener)(&self.path).map_err(failed).ok()
    }

    /// What the driver can do, and the timeout it has now; `None`, logged, if it cannot be used.
    fn inspect(&mut self, file: &dyn Handle, log: &Log) -> Option<(Factor, u32)> {
        let path = self.path.display().to_string();
        let support = file.support();
        let timeout = file.timeout();
        let (support, timeout) = match (support, timeout) {
            (Ok(support), Ok(timeout)) => (support, timeout),
            (_, Err(error)) => {
                log.error(format_args!("{path} failed to report timeout, error {}", told(&error)));
                return None;
            }
            (Err(error), _) => {
                log.error(format_args!("{path} failed to report what it supports, error {}", told(&error)));
                return None;
            }
        };
        log.debug(format_args!("{path} gettimeout reported {timeout}"));
        if let Some(reason) = unfit(&support) {
            log.error(format_args!("{path} \"{}\" cannot be used: {reason}", support.identity()));
            return None;
        }
        let factor = Factor::of(self.described.identity.as_deref().unwrap_or_else(|| support.identity()));
        self.identity = Some(support.identity().to_owned());
        Some((factor, timeout))
    }

    /// Arms the device so that it resets the host `device_timeout` seconds after a ping.
    pub(crate) fn arm(&mut self, fire_timeout: u32, device_timeout: u32, log: &Log) -> Armed {
        let file = match self.file.take() {
            Some(file) => file,
            None => match self.open_logged(log) {
                Some(file) => file,
                None => return Armed::Failed,
            },
        };
        match self.set_up(file.as_ref(), fire_timeout, device_timeout, log) {
            Some(device_timeout) => {
                self.file = Some(file);
                let path = self.path.display();
                log.error(format_args!(
                    "{path} open with timeout {fire_timeout}, resets this host {device_timeout} s after a keepalive"
                ));
                let can_disarm = self.described.no_way_out != Some(true);
                Armed::Running { device_timeout, can_disarm }
            }
            None => self.give_up(file, log),
        }
    }

    /// Sets the timeout and pings. The true timeout in force; `None`, logged, if the device cannot keep it.
    fn set_up(&mut self, file: &dyn Handle, fire: u32, wanted: u32, log: &Log) -> Option<u32> {
        let (factor, mut reported) = self.inspect(file, log)?;
        let asked = factor.to_driver(wanted);
        if reported != asked {
            if let Err(error) = file.set_timeout(asked) {
                log.error(format_args!(
                    "open_watchdog settimeout {asked} error {}: {} does not take the timeout that a fire timeout of {fire} \
                     needs; use another fire timeout or another device (-w)",
                    told(&error),
                    self.path.display()
                ));
                return None;
            }
            match file.timeout() {
                Ok(now) => reported = now,
                Err(error) => {
                    log.error(format_args!("open_watchdog gettimeout check error {}", told(&error)));
                    return None;
                }
            }
        }
        let real = factor.to_true(reported);
        if Timing::new(fire, real).is_none() {
            log.error(format_args!(
                "open_watchdog gettimeout value {reported} set {asked}: {} would reset this host after {real} s, a fire \
                 timeout of {fire} needs {wanted} s or a little less; use another fire timeout or another device (-w)",
                self.path.display()
            ));
            return None;
        }
        if let Err(error) = file.keepalive() {
            log.error(format_args!("{} keepalive error {}", self.path.display(), told(&error)));
            return None;
        }
        Some(real)
    }

    /// Stops a device that could not be set up.
    fn give_up(&mut self, file: Opened, log: &Log) -> Armed {
        let path = self.path.display();
        let no_way_out = self.described.no_way_out == Some(true);
        let file = if no_way_out {
            Err((file, None))
        } else {
            disarm(file).map_err(|(file, error)| (file, Some(error)))
        };
        let Err((file, error)) = file else { return Armed::Failed };
        if let Some(error) = error {
            log.error(format_args!("{path} disarm write error {}", told(&error)));
        }
        let device_timeout = self.true_timeout(file.as_ref());
        self.file = Some(file);
        Armed::Stuck { device_timeout, can_disarm: !no_way_out }
    }

    /// Pings the device. `false`, logged, if the driver did not take it.
    pub(crate) fn ping(&mut self, now: Time, log: &Log) -> bool {
        let Some(file) = &self.file else { return false };
        match file.keepalive() {
            Ok(()) => {
                log.debug("keepalive 0");
                self.logged = None;
                true
            }
            Err(error) => {
                self.complain(now, &error, "keepalive", log);
                false
            }
        }
    }

    /// Stops the device and closes it. `false`, logged, if it would not: it then stays open.
    pub(crate) fn disarm(&mut self, now: Time, log: &Log) -> bool {
        let Some(file) = self.file.take() else { return true };
        match disarm(file) {
            Ok(()) => {
                log.error(format_args!("{} disarmed", self.path.display()));
                self.logged = None;
                true
            }
            Err((file, error)) => {
                self.file = Some(file);
                self.complain(now, &error, "disarm write", log);
                false
            }
        }
    }

    /// Logs an error that will come again every half second, once in a while.
    fn complain(&mut self, now: Time, error: &io::Error, what: impl fmt::Display, log: &Log) {
        let number = errno(error);
        if self.logged.is_some_and(|(last, at)| last == number && now.millis_since(at) < REPEAT_ERROR_MS) {
            return;
        }
        log.error(format_args!("{} {what} error {number}: {error}", self.path.display()));
        self.logged = Some((number, now));
    }
}

#[cfg(test)]
pub(crate) mod pretended;
#[cfg(test)]
mod tests;
