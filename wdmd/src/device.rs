//! The watchdog device: choosing it, arming, pinging, disarming (specification 4).
//!
//! Invariants: the file is dropped only after a successful `V`, or when it is none of a watchdog; a device that runs all the same is
//! opened again; only what the driver confirmed counts as a ping.

mod factor;

use crate::log::Log;
use crate::sysfs::{self, Described};
pub(crate) use factor::Factor;
use sanlock_sys::watchdog::{self, Support};
use sanlock_wdmd::decide::{Armed, DeviceTimeout, Time, Timing};
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Tried in this order when none was named.
const CANDIDATES: [&str; 3] = ["/dev/watchdog0", "/dev/watchdog1", "/dev/watchdog"];
/// This driver reports no options, and has what is needed here: magic close, keepalive, timeout and pretimeout.
const REPORTS_NO_OPTIONS: &str = "IPMI";
/// The timeout of a device of which nothing is known: the shortest there is.
const SHORTEST_TIMEOUT: DeviceTimeout = DeviceTimeout::exactly(1);
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
    /// How long before it fires the device warns, seconds.
    fn pretimeout(&self) -> io::Result<u32>;
    /// Seconds; what the driver made of it.
    fn set_pretimeout(&self, seconds: u32) -> io::Result<u32>;
    /// Lets the next close stop the device, also if it fails: the kernel notes the `V` before it pings.
    fn magic(&mut self) -> io::Result<()>;
    /// Takes that back: no close stops the device, nor the death of this process. A ping, too; a failure leaves open which holds.
    fn take_back(&mut self) -> io::Result<()>;
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

    fn pretimeout(&self) -> io::Result<u32> {
        watchdog::pretimeout(self.as_fd())
    }

    fn set_pretimeout(&self, seconds: u32) -> io::Result<u32> {
        watchdog::set_pretimeout(self.as_fd(), seconds)
    }

    fn magic(&mut self) -> io::Result<()> {
        self.write_all(b"V")
    }

    fn take_back(&mut self) -> io::Result<()> {
        // Only the latest write counts, and only whether it has a `V`. A keepalive changes nothing.
        self.write_all(b"\0")
    }
}

/// An open device, or one pretended by a test.
pub(crate) type Opened = Box<dyn Handle>;

/// Switches off the warning before the reset: an interrupt at which most kernels panic (decision 6). With the short timeouts used here
/// it would come between two pings: `hpwdt` warns 9 s ahead unless it is told otherwise. Returns how long it was, seconds, if it was on.
///
/// # Errors
///
/// It stays on; the text says why.
pub(crate) fn end_pretimeout(file: &dyn Handle, support: &Support) -> Result<Option<u32>, String> {
    if !support.pretimeout() && !reports_no_options(support) {
        return Ok(None);
    }
    let before = file.pretimeout();
    let has_none = |error: &io::Error| {
        !support.pretimeout()
            && matches!(error.raw_os_error(), Some(nix::libc::ENOTTY | nix::libc::EOPNOTSUPP))
    };
    if matches!(before, Ok(0)) || before.as_ref().is_err_and(has_none) {
        return Ok(None);
    }
    let set = file.set_pretimeout(0);
    match (before, file.pretimeout(), set) {
        (Ok(before), Ok(0), _) => Ok(Some(before)),
        // It does not tell, but was told.
        (Err(_), Ok(0) | Err(_), Ok(_)) => Ok(None),
        (_, Ok(left), Ok(_)) => Err(format!("{left} s before the timeout")),
        (_, Ok(left), Err(error)) => Err(format!("{left} s before the timeout, error {}", told(&error))),
        (_, Err(error), _) => Err(format!("error {}", told(&error))),
    }
}

/// What the kernel does and says by path.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    open: fn(&Path) -> io::Result<Opened>,
    /// `None`: not known.
    no_way_out: fn(&Path) -> Option<bool>,
    /// Whether the device runs; `None`: not known.
    runs: fn(&Path) -> Option<bool>,
    /// Who has it open.
    holders: fn(&Path) -> Vec<String>,
}

impl Kernel {
    const REAL: Self = Self {
        open: |path| Ok(Box::new(open(path)?)),
        no_way_out: |path| Described::of(path).no_way_out,
        runs: sysfs::runs,
        holders: sysfs::holders,
    };
}

/// Another process has the device open.
fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::libc::EBUSY)
}

/// The text that explains a device in use, or nothing.
pub(crate) fn held_by(path: &Path, error: &io::Error) -> String {
    if !is_busy(error) {
        return String::new();
    }
    let user = in_use_by(&sysfs::holders(path));
    user.unwrap_or_else(|| ", in use by a process that cannot be seen".to_owned())
}

/// The same by those who are seen to have it open, if any are.
fn in_use_by(holders: &[String]) -> Option<String> {
    let some = !holders.is_empty();
    some.then(|| format!(", in use by process {}: only one can own a watchdog device", holders.join(", ")))
}

/// Why a device that runs is not even opened.
pub(crate) fn left_running(holders: &[String]) -> String {
    let how = in_use_by(holders).unwrap_or_else(|| {
        ", and nobody is seen to have it open: whoever did was killed, and it is about to reset this host; it is left alone"
            .to_owned()
    });
    format!("runs{how}")
}

/// What the driver reports of its abilities says nothing.
pub(crate) fn reports_no_options(support: &Support) -> bool {
    support.identity() == REPORTS_NO_OPTIONS
}

/// Why a driver cannot be used, if so.
pub(crate) fn unfit(support: &Support) -> Option<&'static str> {
    if reports_no_options(support) {
        sysfs::ipmi_does_nothing().then_some("its module was loaded with action=none: it would reset nothing")
    } else if !support.magic_close() {
        Some("no magic close: the device would stop when wdmd dies")
    } else if !support.keepalive() {
        Some("no keepalive")
    } else if !support.set_timeout() {
        Some("its timeout cannot be set")
    } else {
        None
    }
}

/// The chosen device.
pub(crate) struct Device {
    path: PathBuf,
    /// Before it was opened, and when it was armed last: another driver may have taken its place since.
    described: Described,
    /// From the driver itself, when it was asked last. It counts before what sysfs says.
    identity: Option<String>,
    file: Option<Opened>,
    /// It was closed and runs all the same: only a ping keeps it from resetting this host.
    loose: bool,
    /// Its true timeout when the driver was asked last.
    timeout: Option<DeviceTimeout>,
    kernel: Kernel,
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

    fn new(path: PathBuf, described: Described, kernel: Kernel) -> Self {
        Self {
            path,
            described,
            identity: None,
            file: None,
            loose: false,
            timeout: None,
            kernel,
            logged: None,
        }
    }

    fn check(path: PathBuf, was_named: bool, log: &Log) -> Option<Self> {
        if let Err(error) = fs::metadata(&path) {
            if was_named {
                log.error(format_args!("stat {} error {}", path.display(), told(&error)));
            }
            return None;
        }
        let described = Described::of(&path);
        Self::new(path, described, Kernel::REAL).consider(was_named, log)
    }

    /// The device if it can be used, as far as that can be seen without doing what cannot be undone.
    fn consider(self, was_named: bool, log: &Log) -> Option<Self> {
        if self.described.no_way_out != Some(true) {
            return self.look(log);
        }
        let shown = self.path.display();
        let holders = if was_named { Vec::new() } else { (self.kernel.holders)(&self.path) };
        if !holders.is_empty() {
            log.error(format_args!(
                "{shown} is in use by process {}, and cannot be stopped (nowayout): it is passed over",
                holders.join(", ")
            ));
            return None;
        }
        if self.runs_for_others(log) {
            return None;
        }
        log.info(format_args!(
            "{shown} cannot be stopped once it is open (nowayout): it is left alone until a client needs it, and kept alive \
             from then on"
        ));
        Some(self)
    }

    /// Whether the device runs, and not because of this process; logged. Somebody has opened it, and is at work with it or was killed: then users of
    /// the leases of before go on until it fires, and others count on that it does. An open would ping it, and a look stop it.
    ///
    /// What the hardware runs with from the start, and the kernel pings until somebody opens it, does not count: sysfs does not call that active.
    fn runs_for_others(&self, log: &Log) -> bool {
        let runs = self.file.is_none() && !self.loose && (self.kernel.runs)(&self.path) == Some(true);
        if runs {
            let holders = (self.kernel.holders)(&self.path);
            log.error(format_args!("{} {}", self.path.display(), left_running(&holders)));
        }
        runs
    }

    /// Opens the device to see whether it can be used.
    fn look(mut self, log: &Log) -> Option<Self> {
        if self.runs_for_others(log) {
            return None;
        }
        let file = self.open_logged(log).ok()?;
        let usable = self.inspect(file.as_ref(), log).is_some();
        let Err(error) = self.stop(file) else { return usable.then_some(self) };
        let support = self.file.as_ref().map(|file| file.support());
        let no_watchdog = |error: io::Error| error.raw_os_error() == Some(nix::libc::ENOTTY);
        if support.is_some_and(|support| support.is_err_and(no_watchdog)) {
            return None;
        }
        log.error(format_args!(
            "{} disarm write error {}: it runs, and would reset this host; it is kept open and alive until it can be stopped",
            self.path.display(),
            told(&error)
        ));
        Some(self)
    }

    /// Stops the device and closes its file. On failure it stays open, or is opened again: nobody else keeps it from firing.
    fn stop(&mut self, mut file: Opened) -> io::Result<()> {
        // Can be set at any time, and makes the kernel deaf to what stops it.
        let told = if (self.kernel.no_way_out)(&self.path) == Some(true) {
            Err(io::Error::other("it cannot be stopped any more: nowayout has been set"))
        } else {
            file.magic()
        };
        if let Err(error) = told {
            self.file = Some(file);
            return Err(error);
        }
        drop(file);
        self.loose = (self.kernel.runs)(&self.path) == Some(true);
        if !self.loose {
            return Ok(());
        }
        match self.hold() {
            Ok(()) => Err(io::Error::other("it was told to stop, still runs, and was opened again")),
            // It stopped, and somebody else has started it.
            Err(_) if !self.loose => Ok(()),
            Err(_) => Err(io::Error::other("it was told to stop, still runs, and cannot be opened again")),
        }
    }

    /// Opens a device again that runs though it was closed. One that another process has open is that one's business.
    fn hold(&mut self) -> io::Result<()> {
        if self.loose && self.file.is_none() {
            let opened = (self.kernel.open)(&self.path);
            self.loose = opened.as_ref().is_err_and(|error| !is_busy(error));
            self.file = Some(opened?);
        }
        Ok(())
    }

    /// The true timeout of a device that could not be stopped after a look at it.
    pub(crate) fn left_running(&self) -> Option<DeviceTimeout> {
        match self.file.as_deref() {
            Some(file) => Some(self.true_timeout(file)),
            None => self.loose.then(|| self.timeout.unwrap_or(SHORTEST_TIMEOUT)),
        }
    }

    /// What it was before, or the shortest there is, if the driver does not tell.
    fn true_timeout(&self, file: &dyn Handle) -> DeviceTimeout {
        let identity = file
            .support()
            .map_or_else(|_| self.identity().to_owned(), |support| support.identity().to_owned());
        let now = file.timeout().map(|reported| Factor::of(&identity).to_true(reported));
        now.ok().or(self.timeout).unwrap_or(SHORTEST_TIMEOUT)
    }

    /// The driver's name for it, `unknown` if it has none.
    pub(crate) fn identity(&self) -> &str {
        self.identity.as_deref().or(self.described.identity.as_deref()).unwrap_or("unknown")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn open_logged(&self, log: &Log) -> io::Result<Opened> {
        let path = self.path.display();
        let failed = |error: &io::Error| {
            log.error(format_args!("open {path} error {}{}", told(error), held_by(&self.path, error)));
        };
        (self.kernel.open)(&self.path).inspect_err(failed)
    }

    /// What the driver can do, and the timeout it has now; `None`, logged, if it cannot be used.
    fn inspect(&mut self, file: &dyn Handle, log: &Log) -> Option<(Support, u32)> {
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
        let factor = Factor::of(support.identity());
        self.identity = Some(support.identity().to_owned());
        self.timeout = Some(factor.to_true(timeout));
        Some((support, timeout))
    }

    /// Arms the device so that it resets the host `device_timeout` seconds after a ping.
    pub(crate) fn arm(&mut self, fire_timeout: u32, device_timeout: u32, log: &Log) -> Armed {
        // It may have been started since it was chosen, by a wdmd whose marker lies in another `/dev/shm`.
        if self.runs_for_others(log) {
            return Armed::Failed;
        }
        // A device that ran on may have been told to stop, and has not forgotten that: it would stop when this process dies.
        let ran_on = self.loose || self.file.is_some();
        let mut file = match self.file.take() {
            Some(file) => file,
            None => match self.open_logged(log) {
                Ok(file) => file,
                Err(error) => {
                    self.loose &= !is_busy(&error);
                    return self.not_armed();
                }
            },
        };
        self.loose = false;
        // Where sysfs says nothing any more what it said before is the safer guess: such a device is not closed.
        self.described.no_way_out = (self.kernel.no_way_out)(&self.path).or(self.described.no_way_out);
        let may_be_set_up = !ran_on || self.take_back(file.as_mut(), log);
        let in_force =
            may_be_set_up.then(|| self.set_up(file.as_ref(), fire_timeout, device_timeout, log)).flatten();
        match in_force {
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

    /// From now on nothing but another `V` lets the device stop. `false`, logged, if that is not certain.
    fn take_back(&self, file: &mut dyn Handle, log: &Log) -> bool {
        let failed = |error: &io::Error| {
            log.error(format_args!(
                "{} write error {}: it may stop when wdmd ends, so nobody may rely on it",
                self.path.display(),
                told(error)
            ));
        };
        file.take_back().inspect_err(failed).is_ok()
    }

    /// Sets the timeout and pings. The true timeout in force; `None`, logged, if the device cannot keep it.
    fn set_up(&mut self, file: &dyn Handle, fire: u32, wanted: u32, log: &Log) -> Option<DeviceTimeout> {
        let (support, mut reported) = self.inspect(file, log)?;
        let factor = Factor::of(support.identity());
        let asked = factor.to_driver(wanted);
        if asked == 0 {
            // Some drivers take that, and reset the host at once.
            log.error(format_args!(
                "open_watchdog: {} cannot do the timeout of {wanted} s that a fire timeout of {fire} needs; use another fire timeout or another device (-w)",
                self.path.display()
            ));
            return None;
        }
        // What such a driver says it has may be what it was loaded with, and not what the hardware was told.
        if reported != asked || reports_no_options(&support) {
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
        self.timeout = Some(real);
        if Timing::new(fire, real).is_none() {
            log.error(format_args!(
                "open_watchdog gettimeout value {reported} set {asked}: {} would reset this host after {real} s, a fire \
                 timeout of {fire} needs {wanted} s or a little less; use another fire timeout or another device (-w)",
                self.path.display()
            ));
            return None;
        }
        match end_pretimeout(file, &support) {
            Ok(None) => {}
            Ok(Some(before)) => log.info(format_args!(
                "{} pretimeout of {before} s switched off: with a timeout of {reported} s it would stop a host that is well",
                self.path.display()
            )),
            Err(why) => {
                log.error(format_args!(
                    "{} pretimeout cannot be switched off ({why}): with a timeout of {reported} s it would stop a host that is \
                     well; switch it off where the driver is loaded, or use another device (-w)",
                    self.path.display()
                ));
                return None;
            }
        }
        if let Err(error) = file.keepalive() {
            log.error(format_args!("{} keepalive error {}", self.path.display(), told(&error)));
            return None;
        }
        Some(real)
    }

    /// Stops a device that could not be set up.
    fn give_up(&mut self, file: Opened, log: &Log) -> Armed {
        if self.described.no_way_out == Some(true) {
            self.file = Some(file);
        } else if let Err(error) = self.stop(file) {
            log.error(format_args!("{} disarm write error {}", self.path.display(), told(&error)));
        }
        self.not_armed()
    }

    /// What becomes of a device that could not be armed: one that runs is kept alive, and nobody relies on it.
    fn not_armed(&self) -> Armed {
        let can_disarm = self.described.no_way_out != Some(true);
        match self.left_running() {
            Some(device_timeout) => Armed::Stuck { device_timeout, can_disarm },
            None => Armed::Failed,
        }
    }

    /// Pings the device. `false`, logged, if the driver did not take it.
    pub(crate) fn ping(&mut self, now: Time, log: &Log) -> bool {
        let Some(file) = self.held(now, log) else { return false };
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

    /// The open device, opened again if it runs without being so. Failures are logged.
    fn held(&mut self, now: Time, log: &Log) -> Option<&Opened> {
        if let Err(error) = self.hold() {
            self.complain(now, &error, "open", log);
        }
        self.file.as_ref()
    }

    /// Stops the device and closes it. `false`, logged, if it would not: it then stays open, or is opened again.
    pub(crate) fn disarm(&mut self, now: Time, log: &Log) -> bool {
        if self.loose && self.held(now, log).is_none() {
            return false;
        }
        let Some(file) = self.file.take() else { return true };
        match self.stop(file) {
            Ok(()) => {
                log.error(format_args!("{} disarmed", self.path.display()));
                self.logged = None;
                true
            }
            Err(error) => {
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
