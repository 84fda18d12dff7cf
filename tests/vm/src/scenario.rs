//! The scenarios: who runs what, which timeouts, what holds the lease, what fails, and what has to come of it.

use std::fmt;

use crate::guest::Cut;

/// Whose programs a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// This project's.
    Ours,
    /// sanlock and wdmd 3.8.5 of Debian.
    Original,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ours => "ours",
            Self::Original => "3.8.5",
        })
    }
}

/// What a guest has besides the lock manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outfit {
    /// The holder of this program.
    Holder,
    /// lvm2 and lvmlockd as well.
    Lvm,
}

impl Outfit {
    /// Modules it needs.
    pub(crate) fn modules(self) -> &'static str {
        match self {
            Self::Holder => "virtio_pci,virtio_blk",
            Self::Lvm => "virtio_pci,virtio_blk,dm-mod",
        }
    }
}

/// The watchdog of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// A PCI card; the emulator reports when it fires.
    I6300esb,
    /// A timer of the guest's kernel; it shows as a reboot.
    Softdog,
    /// In Intel chip sets: resets at its second expiry.
    Itco,
    /// Takes at most 30 seconds.
    Ib700,
}

impl Device {
    /// Options of the emulator.
    pub(crate) fn emulator_options(self) -> &'static [&'static str] {
        match self {
            Self::I6300esb => &["-device", "i6300esb"],
            Self::Softdog => &[],
            Self::Itco => &["-M", "q35", "-global", "ICH9-LPC.noreboot=false"],
            Self::Ib700 => &["-device", "ib700"],
        }
    }

    /// Modules the guest loads, separated by commas.
    pub(crate) fn modules(self) -> &'static str {
        match self {
            Self::I6300esb => "i6300esb",
            Self::Softdog => "softdog",
            Self::Itco => "i2c-i801,lpc_ich,iTCO_wdt",
            Self::Ib700 => "ib700wdt",
        }
    }

    /// Whether the emulator sends a WATCHDOG event when it fires.
    pub(crate) fn is_hardware(self) -> bool {
        self != Self::Softdog
    }
}

/// Timeouts in seconds, the same on both hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// `watchdog_fire_timeout`.
    pub(crate) fire: u64,
    /// `io_timeout`.
    pub(crate) io: u64,
    /// `kill_grace_seconds`, `None` for the default.
    pub(crate) grace: Option<u64>,
}

impl Timing {
    /// Other hosts take a lease after this.
    pub(crate) fn dead(self) -> u64 {
        8 * self.io + self.fire
    }
}

/// Fast: seconds from failure to take-over are 26.
const FAST: Timing = Timing { fire: 10, io: 2, grace: None };
/// With room for killing gently before killing: 46 seconds.
const GENTLE: Timing = Timing { fire: 30, io: 2, grace: Some(5) };
/// Fast, but with time for programs to let go between failure and killing.
const ASKING: Timing = Timing { fire: 10, io: 2, grace: Some(5) };
/// The only fire timeout of 3.8.5: 84 seconds.
const OLD: Timing = Timing { fire: 60, io: 3, grace: None };

/// What the failing host has at stake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stake {
    /// A joined lockspace that nobody uses any more: a lease was held and released.
    Idle,
    /// A lease held by a process that dies of any signal.
    Holder,
    /// By one that ignores SIGTERM.
    IgnoresTerm,
    /// By one with a kill program that makes it stop.
    KillProgram,
    /// By one with a write to the lease disk always going on: unkillable once that hangs.
    Stuck,
    /// By one that ignores SIGTERM, and the lockspace is marked as used by others.
    Used,
    /// By one that ignores SIGTERM; its lease is kept as an orphan when it ends, and orphans count.
    Orphan,
}

/// What goes wrong on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The lease disk, for good.
    Cut(Cut),
    /// The lease disk, for good, and then the holder ends: its release hangs.
    CutThenHolderEnds(Cut),
    /// The lease disk, for this many seconds.
    ShortCut(Cut, u64),
    /// Two lease disks by turns, several times, overlapping, this many seconds each.
    TwoDisksByTurns(Cut, u64),
    /// SIGKILL of a daemon.
    Kill(Daemon),
    /// SIGSTOP of a daemon.
    Stop(Daemon),
    /// SIGSTOP of a daemon and a moment later SIGKILL.
    StopThenKill(Daemon),
}

/// One of the two daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// The lock manager.
    Sanlock,
    /// The watchdog multiplexer.
    Wdmd,
}

/// What has to come of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A watchdog reset, then the other host gets the lease.
    Reset,
    /// The holder is stopped without a reset, then the other host gets the lease.
    Stopped,
    /// Nothing: no kill, no reset, renewals go on, the holder goes on writing.
    Undisturbed,
    /// No reset, and the other host may have the lease at any time, since nobody held it.
    NoReset,
}

/// Two hosts, one of which fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    /// Letter of the list in `README.md`, and what happens.
    pub(crate) name: &'static str,
    /// The host that fails, and the one that waits for the lease.
    pub(crate) hosts: [Kind; 2],
    /// The watchdog of both.
    pub(crate) device: Device,
    /// Timeouts.
    pub(crate) timing: Timing,
    /// What the failing host has.
    pub(crate) stake: Stake,
    /// How it fails.
    pub(crate) fault: Fault,
    /// What must come of it.
    pub(crate) outcome: Outcome,
}

const fn ours(name: &'static str, timing: Timing, stake: Stake, fault: Fault, outcome: Outcome) -> Scenario {
    let hosts = [Kind::Ours, Kind::Ours];
    Scenario { name, hosts, device: Device::I6300esb, timing, stake, fault, outcome }
}

const fn mixed(
    name: &'static str,
    hosts: [Kind; 2],
    stake: Stake,
    fault: Fault,
    outcome: Outcome,
) -> Scenario {
    Scenario { name, hosts, device: Device::I6300esb, timing: OLD, stake, fault, outcome }
}

const OO: [Kind; 2] = [Kind::Original, Kind::Original];
const ON: [Kind; 2] = [Kind::Original, Kind::Ours];
const NO: [Kind; 2] = [Kind::Ours, Kind::Original];

/// All scenarios of two hosts.
pub(crate) const PAIRS: &[Scenario] = &[
    ours("a-cut-errors", FAST, Stake::Holder, Fault::Cut(Cut::Errors), Outcome::Stopped),
    ours("a-cut-hang", FAST, Stake::IgnoresTerm, Fault::Cut(Cut::Hang), Outcome::Stopped),
    ours("a-gentle-errors", GENTLE, Stake::IgnoresTerm, Fault::Cut(Cut::Errors), Outcome::Stopped),
    ours("a-gentle-hang", GENTLE, Stake::IgnoresTerm, Fault::Cut(Cut::Hang), Outcome::Stopped),
    ours("b-stuck-hang", FAST, Stake::Stuck, Fault::Cut(Cut::Hang), Outcome::Reset),
    ours("b-release-hang", FAST, Stake::Holder, Fault::CutThenHolderEnds(Cut::Hang), Outcome::Reset),
    ours("b-used-errors", FAST, Stake::Used, Fault::Cut(Cut::Errors), Outcome::Reset),
    Scenario {
        device: Device::Softdog,
        ..ours("b-used-softdog", FAST, Stake::Used, Fault::Cut(Cut::Errors), Outcome::Reset)
    },
    ours("b-orphan-errors", FAST, Stake::Orphan, Fault::Cut(Cut::Errors), Outcome::Reset),
    ours("c-kill-daemon", FAST, Stake::Holder, Fault::Kill(Daemon::Sanlock), Outcome::Reset),
    ours("d-stop-daemon", FAST, Stake::Holder, Fault::Stop(Daemon::Sanlock), Outcome::Reset),
    ours("d-stop-wdmd", FAST, Stake::Holder, Fault::Stop(Daemon::Wdmd), Outcome::Reset),
    ours("d-stop-kill-daemon", FAST, Stake::Holder, Fault::StopThenKill(Daemon::Sanlock), Outcome::Reset),
    ours("d-stop-kill-wdmd", FAST, Stake::Holder, Fault::StopThenKill(Daemon::Wdmd), Outcome::Reset),
    ours("e-back-errors", FAST, Stake::Holder, Fault::ShortCut(Cut::Errors, 9), Outcome::Undisturbed),
    ours("e-back-hang", FAST, Stake::Holder, Fault::ShortCut(Cut::Hang, 9), Outcome::Undisturbed),
    ours("f-idle-kill", FAST, Stake::Idle, Fault::Kill(Daemon::Sanlock), Outcome::NoReset),
    ours("f-idle-errors", FAST, Stake::Idle, Fault::Cut(Cut::Errors), Outcome::NoReset),
    ours("f-idle-hang", FAST, Stake::Idle, Fault::Cut(Cut::Hang), Outcome::NoReset),
    ours("g-by-turns", FAST, Stake::Holder, Fault::TwoDisksByTurns(Cut::Errors, 6), Outcome::Undisturbed),
    ours("i-kill-program", GENTLE, Stake::KillProgram, Fault::Cut(Cut::Errors), Outcome::Stopped),
    ours("j-kill-wdmd", FAST, Stake::Holder, Fault::Kill(Daemon::Wdmd), Outcome::Reset),
    mixed("h-original-killed", ON, Stake::Holder, Fault::Kill(Daemon::Sanlock), Outcome::Reset),
    mixed("h-original-cut", ON, Stake::IgnoresTerm, Fault::Cut(Cut::Errors), Outcome::Stopped),
    mixed("h-ours-killed", NO, Stake::Holder, Fault::Kill(Daemon::Sanlock), Outcome::Reset),
    mixed("h-ours-cut", NO, Stake::IgnoresTerm, Fault::Cut(Cut::Errors), Outcome::Stopped),
    mixed("o-killed", OO, Stake::Holder, Fault::Kill(Daemon::Sanlock), Outcome::Reset),
    mixed("o-cut", OO, Stake::IgnoresTerm, Fault::Cut(Cut::Errors), Outcome::Stopped),
    mixed("o-used", OO, Stake::Used, Fault::Cut(Cut::Errors), Outcome::Reset),
];

/// What the single host of [`SOLOS`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Solo {
    /// The daemon is killed while a lease is held: the device has to fire in time.
    Fires,
    /// The device cannot do what is asked: the lockspace has to be refused.
    Refused,
    /// The machine sleeps while a lease is held, for longer than others would wait: the holder has to be stopped when it wakes up.
    Sleeps,
}

/// One host, with a clock that jumps over idle time unless it sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoloScenario {
    /// As in [`Scenario`].
    pub(crate) name: &'static str,
    /// Whose programs.
    pub(crate) kind: Kind,
    /// Its watchdog.
    pub(crate) device: Device,
    /// Timeouts.
    pub(crate) timing: Timing,
    /// What has to happen.
    pub(crate) what: Solo,
}

const fn solo(name: &'static str, kind: Kind, device: Device, timing: Timing, what: Solo) -> SoloScenario {
    SoloScenario { name, kind, device, timing, what }
}

/// For a clock that jumps over idle time: while a request is under way the guest is idle, so its clock runs far ahead of the
/// disk. The long io timeout costs nothing there.
const fn jumping(fire: u64) -> Timing {
    Timing { fire, io: 60, grace: None }
}

/// A fire timeout whose fourth is still more than an ib700 can do, also as it is asked for less.
const UNWORKABLE: u64 = 160;

/// All scenarios of one host.
pub(crate) const SOLOS: &[SoloScenario] = &[
    solo("k-i6300esb", Kind::Ours, Device::I6300esb, jumping(60), Solo::Fires),
    solo("k-softdog", Kind::Ours, Device::Softdog, jumping(10), Solo::Fires),
    solo("k-itco", Kind::Ours, Device::Itco, jumping(20), Solo::Fires),
    // Half of half of it, 2 s, is less than that driver takes.
    solo("k-itco-refused", Kind::Ours, Device::Itco, jumping(10), Solo::Refused),
    solo("k-itco-60", Kind::Ours, Device::Itco, jumping(60), Solo::Fires),
    solo("k-ib700", Kind::Ours, Device::Ib700, jumping(10), Solo::Fires),
    solo("k-ib700-refused", Kind::Ours, Device::Ib700, jumping(UNWORKABLE), Solo::Refused),
    solo("k-original-softdog", Kind::Original, Device::Softdog, jumping(60), Solo::Fires),
    solo("k-original-ib700-refused", Kind::Original, Device::Ib700, jumping(60), Solo::Refused),
    // Until it sleeps the device runs, without pings: that takes some seconds.
    solo("m-sleep", Kind::Ours, Device::Softdog, OLD, Solo::Sleeps),
];

/// Two hosts that share a volume group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LvmScenario {
    /// As in [`Scenario`].
    pub(crate) name: &'static str,
    /// Whose lock manager each of them runs.
    pub(crate) hosts: [Kind; 2],
    /// Timeouts.
    pub(crate) timing: Timing,
}

/// All of them.
pub(crate) const LVMS: &[LvmScenario] = &[
    LvmScenario { name: "l-lvm-ours", hosts: [Kind::Ours, Kind::Ours], timing: ASKING },
    LvmScenario { name: "l-lvm-mixed", hosts: [Kind::Ours, Kind::Original], timing: OLD },
    LvmScenario { name: "l-lvm-original", hosts: [Kind::Original, Kind::Original], timing: OLD },
];
