//! What the daemon is told: built-in defaults, then `sanlock.conf`, then the command line; later wins (command-line.md 9, 10).
//!
//! A value that cannot be used never becomes another value: the default stays and a [`Warning`] says so. The daemon logs the
//! warnings once its log is open. The original reads `use_watchdog = yes` as 0, switches the watchdog off and says nothing.

use crate::conf::{self, FILE_BYTES_MAX, Setting, WARNINGS_MAX, Warning, excerpt};
use sanlock_lease::limits::{IO_TIMEOUT_SECONDS_MAX, NAME_BYTES};
use sanlock_lease::name::Name;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_wdmd::decide::wanted_device_timeout;
use sanlock_wire::limits::MAX_STATE_RECORDS;
use std::ffi::OsString;
use std::io::Read;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

mod debug_cmd;
mod fire;
mod host_name;
pub mod on_fail;

pub use on_fail::OnFail;

/// The configuration file; the path is fixed (command-line.md 10).
pub const CONFIG_PATH: &str = "/etc/sanlock/sanlock.conf";
/// Directory of socket and pid file unless `SANLOCK_RUN_DIR` names another (command-line.md 12.1).
pub const DEFAULT_RUN_DIR: &str = "/run/sanlock";
/// Fewest worker threads (command-line.md 3.4, `-t`).
pub const WORKER_THREADS_MIN: u32 = 2;
/// Most worker threads; our limit, so that a slip does not become a thousand stacks.
pub const WORKER_THREADS_MAX: u32 = 256;
/// Seconds of graceful recovery that are accepted (command-line.md 3.4, `-g`).
pub const KILL_GRACE_SECONDS: RangeInclusive<u32> = 0..=60;
/// Seconds that a process is given to die of SIGKILL before others may take over what it had, where no watchdog would end it.
const DEATH_SECONDS: u64 = 10;
/// Largest renewal history; our limit, what clients accept in one answer: 36 hours with an io timeout of 1 s, two weeks with that of 10 s.
pub const RENEWAL_HISTORY_MAX: u32 = 65_536;
const _: () = assert!(RENEWAL_HISTORY_MAX as usize <= MAX_STATE_RECORDS);
/// Numbers accepted for `max_sectors_kb`; they must be even (command-line.md 10.2).
pub const MAX_SECTORS_KB: RangeInclusive<u32> = 1..=8192;
/// Log priorities; -1 is none, 7 is debug.
pub const PRIORITIES: RangeInclusive<i32> = -1..=7;
/// Levels of memory locking.
pub const MLOCK_LEVELS: RangeInclusive<u32> = 0..=MLOCK_FUTURE;
/// The level that locks memory to come, too.
pub const MLOCK_FUTURE: u32 = 2;
/// Any unsigned setting that fits an `int`.
const UINT: RangeInclusive<u32> = 0..=i32::MAX.unsigned_abs();

/// What to do about the largest request size of a device (command-line.md 10.2, `max_sectors_kb`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxSectorsKb {
    /// Leave the device alone.
    Ignore,
    /// The align size of the lockspace.
    Align,
    /// This many KiB.
    Kib(u32),
}

/// The daemon's settings. Numbers that the original prints in `status -D` keep their value, so that `quiet_fail = 7` shows
/// as 7; as a switch, anything but 0 is on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `-D`: stay in the foreground and log everything to stderr.
    pub foreground: bool,
    /// `quiet_fail`, `-Q`: log lock contention at debug level.
    pub quiet_fail: u32,
    /// `debug_renew`, `-R`: log renewals; 2 logs more.
    pub debug_renew: u32,
    /// `debug_clients`: log connections.
    pub debug_clients: u32,
    /// `debug_cmd`: bit per request number whose arrival is logged.
    pub debug_cmds: u64,
    /// `debug_io`: log submissions.
    pub debug_io_submit: bool,
    /// `debug_io`: log completions.
    pub debug_io_complete: bool,
    /// `paxos_debug_all`: log ballots in full.
    pub paxos_debug_all: u32,
    /// `use_aio`: asynchronous I/O.
    pub use_aio: u32,
    /// `logfile_priority`, `-L`.
    pub logfile_priority: i32,
    /// `logfile_use_utc`.
    pub logfile_use_utc: u32,
    /// `syslog_priority`, `-S`.
    pub syslog_priority: i32,
    /// `names_log_priority`.
    pub names_log_priority: i32,
    /// `use_watchdog`, `-w`.
    pub use_watchdog: u32,
    /// `io_timeout` (a setting of 5.1): of joins that name none.
    pub io_timeout: IoTimeout,
    /// `watchdog_fire_timeout` (a setting of 5.1): the same on every host.
    pub fire: WatchdogFire,
    /// `high_priority`, `-h`: real-time scheduling.
    pub high_priority: u32,
    /// `mlock_level`, `-l`: 0 none, 1 current memory and what is used later (if unlimited), 2 also future memory.
    pub mlock_level: u32,
    /// `use_hugepages` (a setting of 5.1): large buffers are in huge pages.
    pub hugepages: bool,
    /// `sh_retries`: retries of a shared acquire.
    pub sh_retries: u32,
    /// `uname`, `-U`: user to run as, name or number; `None`: `sanlock` if user and group of that name exist, else root.
    pub uname: Option<String>,
    /// `gname`, `-G`: group to run as, likewise.
    pub gname: Option<String>,
    /// `our_host_name`, `-e`; `None`: generate one (command-line.md 9.4).
    pub our_host_name: Option<Name>,
    /// `renewal_read_extend_sec`: seconds; `None`: the io timeout.
    pub renewal_read_extend_sec: Option<u32>,
    /// `renewal_history_size`, `-H`: entries, 0 none.
    pub renewal_history_size: u32,
    /// `max_sectors_kb`.
    pub max_sectors_kb: MaxSectorsKb,
    /// `write_init_io_timeout`: seconds for each formatting write.
    pub write_init_io_timeout: u32,
    /// `max_worker_threads`, `-t`.
    pub max_worker_threads: u32,
    /// `kill_grace_seconds`, `-g`: seconds of graceful recovery; `None`: see [`Config::kill_grace_seconds`].
    pub kill_grace: Option<u32>,
    /// `on_fail`: programs run when a lockspace fails.
    pub on_fail: OnFail,
    /// `-b`: seconds a bit stays set in the host_id bitmap; `None`: 6 io timeouts.
    pub set_bitmap_seconds: Option<u32>,
    /// Directory of socket and pid file.
    pub run_dir: PathBuf,
    /// Whether limits, groups and user are to be set; see [`Environment::privileged`].
    pub privileged: bool,
    /// What was given and has no effect.
    pub warnings: Vec<Warning>,
    /// Why nobody knows whether `fire` is this host's fire timeout: with it no daemon starts.
    pub fire_doubt: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            foreground: false,
            quiet_fail: 1,
            debug_renew: 0,
            debug_clients: 0,
            debug_cmds: debug_cmd::DEFAULT_MASK,
            debug_io_submit: false,
            debug_io_complete: false,
            paxos_debug_all: 0,
            use_aio: 1,
            logfile_priority: 4,
            logfile_use_utc: 0,
            syslog_priority: 3,
            names_log_priority: 4,
            use_watchdog: 1,
            io_timeout: IoTimeout::DEFAULT,
            fire: WatchdogFire::DEFAULT,
            high_priority: 0,
            mlock_level: 1,
            hugepages: true,
            sh_retries: 8,
            uname: None,
            gname: None,
            our_host_name: None,
            renewal_read_extend_sec: None,
            renewal_history_size: 180,
            max_sectors_kb: MaxSectorsKb::Kib(1024),
            write_init_io_timeout: 60,
            max_worker_threads: 8,
            kill_grace: None,
            on_fail: OnFail::default(),
            set_bitmap_seconds: None,
            run_dir: PathBuf::from(DEFAULT_RUN_DIR),
            privileged: true,
            warnings: Vec::new(),
            fire_doubt: None,
        }
    }
}

/// The daemon's options, letter by letter (command-line.md 9).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Overrides {
    /// `-D`
    pub foreground: bool,
    /// Whether there is an `-o`, which 3.8.5 accepts and ignores.
    pub io_timeout_ignored: bool,
    /// `-Q`
    pub quiet_fail: Option<u32>,
    /// `-R`
    pub debug_renew: Option<u32>,
    /// `-H`
    pub renewal_history_size: Option<u32>,
    /// `-L`
    pub logfile_priority: Option<i32>,
    /// `-S`
    pub syslog_priority: Option<i32>,
    /// `-U`
    pub uname: Option<String>,
    /// `-G`
    pub gname: Option<String>,
    /// `-t`
    pub max_worker_threads: Option<u32>,
    /// `-g`
    pub kill_grace_seconds: Option<u32>,
    /// `-w`
    pub use_watchdog: Option<u32>,
    /// `-h`
    pub high_priority: Option<u32>,
    /// `-l`
    pub mlock_level: Option<u32>,
    /// `-a`, 0 or 1
    pub use_aio: Option<u32>,
    /// `-b`
    pub set_bitmap_seconds: Option<u32>,
    /// `-e`
    pub our_host_name: Option<Vec<u8>>,
}

/// The environment variables that the daemon reads (command-line.md 12.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// `SANLOCK_RUN_DIR`; an empty value is used as it is.
    pub run_dir: Option<OsString>,
    /// `SANLOCK_PRIVILEGED`; unset or `1` is privileged, any other text is not.
    pub privileged: Option<OsString>,
}

impl Environment {
    /// The variables of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            run_dir: std::env::var_os("SANLOCK_RUN_DIR"),
            privileged: std::env::var_os("SANLOCK_PRIVILEGED"),
        }
    }
}

impl Config {
    /// Defaults, then the file at [`CONFIG_PATH`], then the command line, then the environment.
    #[must_use]
    pub fn load(overrides: &Overrides, environment: &Environment) -> Self {
        Self::of(read_file(Path::new(CONFIG_PATH)), overrides, environment)
    }

    /// The same for whoever must not go by defaults where this host's daemon may be told something else.
    ///
    /// # Errors
    /// The file is there and cannot be read, or its line about the fire timeout cannot: why.
    pub fn load_readable(overrides: &Overrides, environment: &Environment) -> Result<Self, String> {
        let config = Self::load(overrides, environment);
        match config.fire_doubt {
            Some(why) => Err(why),
            None => Ok(config),
        }
    }

    fn of(file: std::io::Result<Option<Vec<u8>>>, overrides: &Overrides, environment: &Environment) -> Self {
        let mut config = Self::default();
        match file {
            Ok(Some(file)) => config.apply_file(&file),
            Ok(None) => {}
            Err(error) => {
                let text = format!("{CONFIG_PATH} cannot be read: {error}");
                config.fire_doubt = Some(text.clone());
                config.warn(Warning::general(text));
            }
        }
        config.apply_overrides(overrides);
        config.apply_environment(environment);
        let excess = [config.read_extend_excess(config.io_timeout), config.grace_excess()];
        for text in excess.into_iter().flatten() {
            config.warn(Warning::general(text));
        }
        config
    }

    /// Seconds of graceful recovery: as configured, else what the watchdog leaves time for (command-line.md 10.2).
    ///
    /// With a watchdog some seconds less than without, and than in the original: our wdmd resets the machine 16 to 17 s before the
    /// fire timeout is over (11 to 12 s with less than 60 s), and a large process takes some time to die of SIGKILL.
    #[must_use]
    pub fn kill_grace_seconds(&self) -> u32 {
        self.kill_grace.unwrap_or(match (self.fire.secs(), self.use_watchdog != 0) {
            (60.., false) => 40,
            (60.., true) => 34,
            (30..=59, false) => 15,
            (30..=59, true) => 10,
            _ => 0,
        })
    }

    /// What it means, if a grace is configured that outlasts the watchdog of our wdmd (docs/decisions/0006), or, without a watchdog, the time that
    /// others wait.
    #[must_use]
    pub fn grace_excess(&self) -> Option<String> {
        let grace = u64::from(self.kill_grace?);
        if self.use_watchdog == 0 {
            let fire = self.fire.secs();
            return (grace + DEATH_SECONDS > fire).then(|| {
                format!(
                    "kill_grace_seconds {grace}: without a watchdog SIGKILL is all that stops a process, and others take its leases over {fire} s \
                     after a lockspace has failed: at most {} leave it time to die",
                    fire.saturating_sub(DEATH_SECONDS)
                )
            });
        }
        let device = wanted_device_timeout(u32::try_from(self.fire.secs()).ok()?)?;
        // It is pinged for the last time by F - 2D - 1 after the expiry, and resets the host D later.
        let reset = self.fire.secs().saturating_sub(u64::from(device) + 2);
        (grace >= reset).then(|| {
            format!(
                "kill_grace_seconds {grace}: with a fire timeout of {} s the watchdog resets this host some {reset} s after a lockspace has \
                 failed, so no process gets SIGKILL before",
                self.fire.secs()
            )
        })
    }

    /// What it means, if a wait is configured for a renewal's read that is longer than a lockspace with this io timeout allows.
    #[must_use]
    pub fn read_extend_excess(&self, io_timeout: IoTimeout) -> Option<String> {
        let (max, configured) = (io_timeout.read_extend_secs_max(), self.renewal_read_extend_sec?);
        (u64::from(configured) > max).then(|| {
            format!(
                "renewal_read_extend_sec {configured} is longer than 3 io timeouts: with an io timeout of {} s the wait ends after \
                 {max} s, so that a lost read can be repeated before the lockspace fails",
                io_timeout.secs()
            )
        })
    }

    fn warn(&mut self, warning: Warning) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(warning);
        }
    }

    /// Applies the text of a configuration file.
    pub fn apply_file(&mut self, file: &[u8]) {
        let (settings, warnings) = conf::parse(file);
        self.warnings.extend(warnings);
        self.fire_doubt = fire::doubt(file);
        for setting in settings {
            if let Err(text) = self.set(&setting) {
                self.warn(Warning::at(setting.line, text));
            } else if let Some(why) = without_effect(setting.key, self) {
                let key = excerpt(setting.key);
                self.warn(Warning::at(setting.line, format!("{key:?} is without effect: {why}")));
            }
        }
    }

    /// Applies one setting of the file.
    ///
    /// # Errors
    /// Why it has no effect.
    fn set(&mut self, setting: &Setting<'_>) -> Result<(), String> {
        match setting.key {
            b"quiet_fail" => self.quiet_fail = switch(setting)?,
            b"debug_renew" => self.debug_renew = switch(setting)?,
            b"debug_clients" => self.debug_clients = switch(setting)?,
            b"debug_cmd" => self.debug_cmds = debug_cmd::apply(self.debug_cmds, setting.value)?,
            b"debug_io" => self.set_debug_io(setting.value)?,
            b"paxos_debug_all" => self.paxos_debug_all = switch(setting)?,
            b"use_aio" => self.use_aio = switch(setting)?,
            b"logfile_priority" => self.logfile_priority = priority(setting)?,
            b"logfile_use_utc" => self.logfile_use_utc = switch(setting)?,
            b"syslog_priority" => self.syslog_priority = priority(setting)?,
            b"names_log_priority" => self.names_log_priority = priority(setting)?,
            b"use_watchdog" => self.use_watchdog = switch(setting)?,
            b"high_priority" => self.high_priority = switch(setting)?,
            b"mlock_level" => self.mlock_level = number(setting, MLOCK_LEVELS)?,
            b"use_hugepages" => self.hugepages = all_or_none(setting)?,
            b"sh_retries" => self.sh_retries = number(setting, UINT)?,
            b"uname" => self.uname = Some(utf8(setting)?),
            b"gname" => self.gname = Some(utf8(setting)?),
            b"our_host_name" => {
                if let Some(warning) = self.set_host_name(setting.value) {
                    return Err(warning);
                }
            }
            b"renewal_read_extend_sec" => self.renewal_read_extend_sec = Some(number(setting, UINT)?),
            b"renewal_history_size" => self.renewal_history_size = number(setting, 0..=RENEWAL_HISTORY_MAX)?,
            b"max_sectors_kb" => self.max_sectors_kb = max_sectors_kb(setting)?,
            b"write_init_io_timeout" => self.write_init_io_timeout = number(setting, 1..=*UINT.end())?,
            b"max_worker_threads" => {
                let expected = between(&(WORKER_THREADS_MIN..=WORKER_THREADS_MAX));
                self.max_worker_threads = number_or(setting, UINT, &expected)?;
                return self.limit_worker_threads();
            }
            b"io_timeout" => {
                let given = number(setting, 1..=IO_TIMEOUT_SECONDS_MAX);
                let read = given.and_then(|seconds| IoTimeout::new(seconds).map_err(|e| e.to_string()));
                self.io_timeout = read.map_err(|why| kept(&why, self.io_timeout.secs()))?;
            }
            b"watchdog_fire_timeout" => self.fire = fire_timeout(setting)?,
            b"kill_grace_seconds" => self.kill_grace = Some(number(setting, KILL_GRACE_SECONDS)?),
            key if OnFail::is_key(key) => self.on_fail.set(key, setting.value)?,
            b"debug_hosts"
            | b"use_compare_and_write"
            | b"create_old_delta_disk_version"
            | b"create_old_paxos_disk_version"
            | b"caw_dpo"
            | b"caw_fua"
            | b"delta_caw_verify"
            | b"paxos_caw_verify" => {
                return Err(format!(
                    "{:?} is a setting of sanlock 5.1 that this version does not have; it is ignored",
                    excerpt(setting.key)
                ));
            }
            _ => return Err(format!("unknown setting {:?} is ignored", excerpt(setting.key))),
        }
        Ok(())
    }

    fn set_debug_io(&mut self, value: &[u8]) -> Result<(), String> {
        let contains = |word: &[u8]| value.windows(word.len()).any(|window| window == word);
        let (submit, complete) = (contains(b"submit"), contains(b"complete"));
        if !submit && !complete {
            return Err(format!(
                "debug_io {:?} is neither submit nor complete and is ignored",
                excerpt(value)
            ));
        }
        self.debug_io_submit |= submit;
        self.debug_io_complete |= complete;
        Ok(())
    }

    /// Takes a host name, cut at 48 bytes. Returns what to say about it.
    fn set_host_name(&mut self, value: &[u8]) -> Option<String> {
        let kept = value.get(..NAME_BYTES).unwrap_or(value);
        if kept.is_empty() {
            return Some("the host name is empty and is ignored".to_owned());
        }
        match Name::new(kept) {
            Ok(name) => self.our_host_name = Some(name),
            Err(error) => return Some(format!("our_host_name is ignored: {error}")),
        }
        (kept.len() < value.len())
            .then(|| format!("our_host_name has {} bytes and is cut to {NAME_BYTES}", value.len()))
    }

    fn limit_worker_threads(&mut self) -> Result<(), String> {
        let given = self.max_worker_threads;
        self.max_worker_threads = given.clamp(WORKER_THREADS_MIN, WORKER_THREADS_MAX);
        if given == self.max_worker_threads {
            return Ok(());
        }
        Err(format!(
            "max_worker_threads {given} is outside {WORKER_THREADS_MIN} to {WORKER_THREADS_MAX}, {} is used",
            self.max_worker_threads
        ))
    }

    /// Applies the command line.
    pub fn apply_overrides(&mut self, given: &Overrides) {
        fn set<T: Copy>(field: &mut T, given: Option<T>) {
            if let Some(value) = given {
                *field = value;
            }
        }
        self.foreground = given.foreground;
        if given.io_timeout_ignored {
            let text = "-o is without effect here, as in 3.8.5: set io_timeout in sanlock.conf, or give -o to add_lockspace";
            self.warn(Warning::general(text.to_owned()));
        }
        set(&mut self.quiet_fail, given.quiet_fail);
        set(&mut self.debug_renew, given.debug_renew);
        set(&mut self.use_watchdog, given.use_watchdog);
        set(&mut self.high_priority, given.high_priority);
        if let Some(use_aio) = given.use_aio {
            self.use_aio = use_aio;
            if let Some(why) = without_effect(b"use_aio", self) {
                self.warn(Warning::general(format!("-a {use_aio} is without effect: {why}")));
            }
        }
        self.set_ranged("-H", given.renewal_history_size, 0..=RENEWAL_HISTORY_MAX, |c| {
            &mut c.renewal_history_size
        });
        self.set_ranged("-L", given.logfile_priority, PRIORITIES, |c| &mut c.logfile_priority);
        self.set_ranged("-S", given.syslog_priority, PRIORITIES, |c| &mut c.syslog_priority);
        // An `Option`, so not ranged by `set_ranged`.
        match given.kill_grace_seconds {
            Some(seconds) if KILL_GRACE_SECONDS.contains(&seconds) => self.kill_grace = Some(seconds),
            Some(seconds) => {
                let kept = self.kill_grace_seconds();
                let text =
                    format!("-g {seconds} is outside 0 to {}, {kept} is used", KILL_GRACE_SECONDS.end());
                self.warn(Warning::general(text));
            }
            None => {}
        }
        self.set_ranged("-l", given.mlock_level, MLOCK_LEVELS, |c| &mut c.mlock_level);
        if let Some(threads) = given.max_worker_threads {
            self.max_worker_threads = threads;
            if let Err(text) = self.limit_worker_threads() {
                self.warn(Warning::general(format!("-t: {text}")));
            }
        }
        // 0 is as good as none (lease-algorithms.md 1.2): a bit that is taken back at once is seen by nobody.
        if let Some(seconds) = given.set_bitmap_seconds.filter(|&seconds| seconds != 0) {
            self.set_bitmap_seconds = Some(seconds);
        }
        if given.uname.is_some() {
            self.uname.clone_from(&given.uname);
        }
        if given.gname.is_some() {
            self.gname.clone_from(&given.gname);
        }
        if let Some(text) = given.our_host_name.as_ref().and_then(|name| self.set_host_name(name)) {
            self.warn(Warning::general(format!("-e: {text}")));
        }
    }

    fn set_ranged<T: Copy + PartialOrd + std::fmt::Display>(
        &mut self,
        option: &str,
        given: Option<T>,
        range: RangeInclusive<T>,
        field: impl Fn(&mut Self) -> &mut T,
    ) {
        match given {
            Some(value) if range.contains(&value) => *field(self) = value,
            Some(value) => {
                let kept = *field(self);
                let text = format!(
                    "{option} {value} is outside {} to {}, {kept} is used",
                    range.start(),
                    range.end()
                );
                self.warn(Warning::general(text));
            }
            None => {}
        }
    }

    /// Applies the environment.
    pub fn apply_environment(&mut self, environment: &Environment) {
        if let Some(dir) = &environment.run_dir {
            self.run_dir = PathBuf::from(dir);
        }
        self.privileged = environment.privileged.as_ref().is_none_or(|text| text == "1");
    }
}

/// Why a setting of the original that was understood changes nothing here, beyond what `status -D` shows.
fn without_effect(key: &[u8], config: &Config) -> Option<&'static str> {
    match key {
        b"use_aio" if config.use_aio == 0 => Some("every transfer has a time limit"),
        b"max_sectors_kb" => Some("the limits of a device's queue are left as they are"),
        b"debug_io" | b"paxos_debug_all" => Some("there are no such log lines"),
        b"names_log_priority" => Some("no log line names the places of resources"),
        _ => None,
    }
}

/// The file's bytes, `None` when it does not exist.
fn read_file(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    // One byte more than is used, so that a longer file is noticed.
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn fire_timeout(setting: &Setting<'_>) -> Result<WatchdogFire, String> {
    let seconds = number(setting, WatchdogFire::RANGE)?;
    WatchdogFire::new(seconds).map_err(|error| error.to_string())
}

fn refused(setting: &Setting<'_>, expected: &str) -> String {
    format!("{} {:?} is not {expected} and is ignored", excerpt(setting.key), excerpt(setting.value))
}

fn parsed<T: std::str::FromStr>(setting: &Setting<'_>) -> Option<T> {
    std::str::from_utf8(setting.value).ok()?.parse().ok()
}

/// What counts in place of a line that is ignored.
fn kept(why: &str, seconds: u64) -> String {
    format!("{why}; {seconds} is used")
}

fn between(range: &RangeInclusive<u32>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}

fn number(setting: &Setting<'_>, range: RangeInclusive<u32>) -> Result<u32, String> {
    let expected = between(&range);
    number_or(setting, range, &expected)
}

/// A number that switches something. Any is accepted, as by the original.
fn switch(setting: &Setting<'_>) -> Result<u32, String> {
    number_or(setting, UINT, "a number (0 for off, 1 for on)")
}

/// A number of this range; `expected` is what there should be.
fn number_or(setting: &Setting<'_>, range: RangeInclusive<u32>, expected: &str) -> Result<u32, String> {
    parsed::<u32>(setting).filter(|value| range.contains(value)).ok_or_else(|| refused(setting, expected))
}

fn priority(setting: &Setting<'_>) -> Result<i32, String> {
    parsed::<i32>(setting).filter(|value| PRIORITIES.contains(value)).ok_or_else(|| {
        refused(setting, &format!("a log priority from {} to {}", PRIORITIES.start(), PRIORITIES.end()))
    })
}

fn all_or_none(setting: &Setting<'_>) -> Result<bool, String> {
    match setting.value {
        b"all" => Ok(true),
        b"none" => Ok(false),
        _ => Err(refused(setting, "all or none")),
    }
}

fn utf8(setting: &Setting<'_>) -> Result<String, String> {
    String::from_utf8(setting.value.to_vec()).map_err(|_| refused(setting, "a name in UTF-8"))
}

fn max_sectors_kb(setting: &Setting<'_>) -> Result<MaxSectorsKb, String> {
    let contains = |word: &[u8]| setting.value.windows(word.len()).any(|window| window == word);
    if contains(b"ignore") {
        return Ok(MaxSectorsKb::Ignore);
    }
    if contains(b"align") {
        return Ok(MaxSectorsKb::Align);
    }
    parsed::<u32>(setting)
        .filter(|kib| MAX_SECTORS_KB.contains(kib) && kib % 2 == 0)
        .map(MaxSectorsKb::Kib)
        .ok_or_else(|| refused(setting, "ignore, align or an even number from 2 to 8192"))
}

#[cfg(test)]
mod tests;
