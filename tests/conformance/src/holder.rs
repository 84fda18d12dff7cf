//! Processes that hold leases through `sanlock client command`.

use std::time::Duration;

use crate::bounded::{self, Output, Running};
use crate::host::Host;

/// An uncontended acquire shows up in INQUIRE within this time.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(60);

/// A process (`sanlock client command … -c /bin/sleep`) that registered with a host's daemon and
/// holds leases. Killed when dropped.
#[derive(Debug)]
pub struct Holder {
    running: Running,
}

impl Holder {
    /// Starts a holder and waits until the daemon says that it holds all `resources` (RESOURCE
    /// arguments).
    ///
    /// # Panics
    /// When the acquire is refused or does not happen in time.
    #[must_use]
    pub fn start(host: &Host, resources: &[&str]) -> Self {
        Self::start_program(host, resources, &["/bin/sleep", "1000"])
    }

    /// Like [`Self::start`], running `program` while the leases are held.
    ///
    /// # Panics
    /// When the acquire is refused or does not happen in time.
    #[must_use]
    pub fn start_program(host: &Host, resources: &[&str], program: &[&str]) -> Self {
        let mut holder = Self::start_waiting(host, resources, program);
        holder.wait_until_held(host, resources.len(), ACQUIRE_LIMIT);
        holder
    }

    /// Like [`Self::start`], with further options of `client command`.
    ///
    /// # Panics
    /// When the acquire is refused or does not happen in time.
    #[must_use]
    pub fn start_with(host: &Host, resources: &[&str], options: &[&str]) -> Self {
        let mut holder = Self::begin(host, resources, options, &["/bin/sleep", "1000"]);
        holder.wait_until_held(host, resources.len(), ACQUIRE_LIMIT);
        holder
    }

    /// Starts a holder without waiting for its acquire.
    #[must_use]
    pub fn start_waiting(host: &Host, resources: &[&str], program: &[&str]) -> Self {
        Self::begin(host, resources, &[], program)
    }

    fn begin(host: &Host, resources: &[&str], options: &[&str], program: &[&str]) -> Self {
        let plain = host.command(&[]);
        let mut command = bounded::dying_with_us(std::path::Path::new(plain.get_program()));
        command.env("SANLOCK_RUN_DIR", host.run_dir()).args(["client", "command"]);
        for resource in resources {
            command.args(["-r", resource]);
        }
        command.args(options).arg("-c").args(program);
        Self { running: Running::start(command) }
    }

    /// Waits until the daemon says that this process holds `count` leases.
    ///
    /// It is not asked (INQUIRE) before it shows one of them: to the original the process is busy while it is asked, and an acquire that
    /// comes at that moment is refused (socket-protocol.md 2.6).
    ///
    /// # Panics
    /// After `limit`, or when the process ends.
    pub fn wait_until_held(&mut self, host: &Host, count: usize, limit: Duration) {
        let pid = self.pid();
        bounded::wait_until("the holder to acquire", limit, || {
            if self.running.ended() {
                panic!("the holder ended: {}", self.running.finish(limit));
            }
            (count == 0 || self.is_shown(host))
                && self.leases(host).is_some_and(|leases| leases.len() == count)
        });
        assert_eq!(pid, self.pid());
    }

    /// Whether `client status` has a lease of this process.
    fn is_shown(&self, host: &Host) -> bool {
        let owner = format!(" p {} ", self.pid());
        let status = host.client(&["client", "status"]).stdout;
        status.lines().any(|line| line.starts_with("r ") && format!("{line} ").contains(&owner))
    }

    /// The process id, which is also the registered one.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// The leases as INQUIRE lists them; `None` when the process is not registered.
    ///
    /// # Panics
    /// When INQUIRE gives another failure than "no such process" or "busy".
    #[must_use]
    pub fn leases(&self, host: &Host) -> Option<Vec<String>> {
        leases_of(host, self.pid())
    }

    /// Whether the process has ended.
    pub fn ended(&mut self) -> bool {
        self.running.ended()
    }

    /// Kills the process and waits for its end.
    pub fn kill(&mut self) {
        self.running.kill();
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// After `limit`.
    pub fn finish(&mut self, limit: Duration) -> Output {
        self.running.finish(limit)
    }
}

/// The leases of process `pid` as INQUIRE lists them; `None` when it is not registered.
///
/// # Panics
/// When INQUIRE gives another failure than "no such process" or "busy" (-16, which means that the
/// acquire still runs and counts as none held).
#[must_use]
pub fn leases_of(host: &Host, pid: u32) -> Option<Vec<String>> {
    let answer = host.connect().inquire(Some(pid));
    match answer.result {
        0 => Some(answer.items()),
        -16 => Some(Vec::new()),
        // Never there, or it hung up while the daemon looked.
        -3 | -116 => None,
        other => panic!("INQUIRE of {pid} gave {other}"),
    }
}
