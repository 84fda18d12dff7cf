//! The kinds of faults: how often each strikes, and how often it did.
//!
//! Every kind can be switched off by itself ([`Faults`], in the settings), and large ones have a timetable and a stream of chance of
//! their own, so that the others strike as before when one of them does not: that is what makes a failing run shrink.

use std::fmt;
use std::str::FromStr;

macro_rules! faults {
    ($($(#[doc = $doc:literal])* $fault:ident $name:literal $usual:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[doc = $doc])* $fault,)*
        }

        impl Fault {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$fault),*];

            /// Its name in settings and reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$fault => $name,)* }
            }

            /// How often it strikes unless the settings say otherwise. Of large ones: shares of [`SHARES`]. Of small ones: times
            /// out of a thousand that it may.
            #[must_use]
            pub fn usual(self) -> u16 {
                match self { $(Self::$fault => $usual,)* }
            }
        }

        const KINDS: usize = [$($name),*].len();
    };
}

faults! {
    /// A host loses its way to a disk, or to all: operations hang or fail.
    LosePath "lose-path" 3;
    /// A sector of a lockspace hangs for one host, and with it every read of more than one host id: no look at the others comes to its end.
    BadSpot "bad-spot" 1;
    /// A lease is held on to, and its host loses that disk for longer than it may.
    Starve "starve" 3;
    /// A daemon stands still.
    Freeze "freeze" 2;
    /// A thread of a daemon stands still.
    Stall "stall" 2;
    /// A daemon and wdmd stand still, but not the watchdog device.
    FreezeAll "freeze-all" 1;
    /// A daemon crashes.
    Crash "crash" 1;
    /// Power is cut.
    PowerCut "power-cut" 1;
    /// A host is asked to leave a lockspace.
    Leave "leave" 2;
    /// A host leaves, and is back while another one does not look.
    Unseen "unseen" 2;
    /// A daemon is asked to end, or told by a signal.
    Shutdown "shutdown" 1;
    /// A process ends.
    EndProcess "end-process" 2;
    /// The next renewal lands when its lockspace has long been left.
    VeryLate "very-late" 1;
    /// wdmd stands still.
    WdFreeze "wd-freeze" 1;
    /// wdmd is killed.
    WdKill "wd-kill" 1;
    /// A whole machine stands still, its watchdog device too.
    Suspend "suspend" 1;
    /// A process ignores SIGTERM.
    IgnoresTerm "ignores-term" 250;
    /// A process cannot be killed.
    Unkillable "unkillable" 80;
    /// A process leaves a descendant behind that goes on using its leases.
    Descendant "descendant" 60;
    /// A process asks not to be sent signals.
    Restricted "restricted" 150;
    /// A process has a program run to stop it, which may fail.
    Killpath "killpath" 300;
    /// That program is never run.
    KillpathLost "killpath-lost" 100;
    /// A process does not wait for a reply to the end.
    Impatient "impatient" 50;
    /// A rejoin record cannot be written.
    RecordUnsaved "record-unsaved" 30;
    /// Rejoin records are lost with the power.
    RecordsLost "records-lost" 500;
    /// A message between threads takes up to a second.
    SlowMessage "slow-message" 10;
    /// A watchdog device refuses to be armed.
    WdRefuses "wd-refuses" 20;
    /// A watchdog device cannot be disarmed. Drawn once for each host.
    WdStays "wd-stays" 100;
}

/// Of so many shares of the large faults each kind has its own.
pub const SHARES: u64 = 25;

impl Fault {
    /// Whether it comes by its own timetable, rather than whenever it may.
    #[must_use]
    pub fn is_large(self) -> bool {
        self <= Self::Suspend
    }
}

/// How often each kind strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Faults([u16; KINDS]);

impl Faults {
    /// None ever does.
    pub const NONE: Self = Self([0; KINDS]);

    /// As usual.
    #[must_use]
    pub fn usual() -> Self {
        let mut faults = Self::NONE;
        for fault in Fault::ALL {
            faults.set(*fault, fault.usual());
        }
        faults
    }

    /// How often this one does.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        u64::from(self.0[fault as usize])
    }

    /// Changes that.
    pub fn set(&mut self, fault: Fault, often: u16) {
        self.0[fault as usize] = often;
    }

    /// The same without this one.
    #[must_use]
    pub fn without(mut self, fault: Fault) -> Self {
        self.set(fault, 0);
        self
    }
}

/// `all`, `none`, or the kinds that strike: `leave`, or `leave:7` if not as often as usual, joined by `+`.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::usual() {
            return f.write_str("all");
        }
        if *self == Self::NONE {
            return f.write_str("none");
        }
        let striking = Fault::ALL.iter().filter(|fault| self.of(**fault) > 0);
        for (n, fault) in striking.enumerate() {
            let plus = if n > 0 { "+" } else { "" };
            let often = self.of(*fault);
            write!(f, "{plus}{}", fault.name())?;
            if often != u64::from(fault.usual()) {
                write!(f, ":{often}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => return Ok(Self::usual()),
            "none" => return Ok(Self::NONE),
            _ => {}
        }
        let mut faults = Self::NONE;
        for part in text.split('+') {
            let (name, often) = part.split_once(':').unwrap_or((part, ""));
            let fault = Fault::ALL.iter().find(|f| f.name() == name);
            let fault = *fault.ok_or_else(|| format!("no kind of fault: {name:?}"))?;
            let often = if often.is_empty() { Ok(fault.usual()) } else { often.parse() };
            faults.set(fault, often.map_err(|e| format!("{part:?}: {e}"))?);
        }
        Ok(faults)
    }
}

/// How often each kind struck. Now and then there is nothing left to strike: a daemon to crash that does not run, a thread that stands
/// still already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Struck([u64; KINDS]);

impl Struck {
    /// Once more.
    pub fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// So often.
    pub fn count_times(&mut self, fault: Fault, times: u64) {
        self.0[fault as usize] += times;
    }

    /// How often this one did.
    #[must_use]
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Adds those of another run.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// Each kind and how often it struck.
    pub fn all(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.iter().map(|fault| (*fault, self.of(*fault)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_as_they_are_written() {
        let mut some = Faults::NONE;
        some.set(Fault::Leave, Fault::Leave.usual());
        some.set(Fault::Killpath, 7);
        for (faults, text) in [(Faults::usual(), "all"), (Faults::NONE, "none"), (some, "leave+killpath:7")] {
            assert_eq!(faults.to_string(), text);
            assert_eq!(text.parse::<Faults>(), Ok(faults));
        }
        assert!("leave+thunder".parse::<Faults>().is_err());
        assert!("leave:x".parse::<Faults>().is_err());
    }

    #[test]
    fn the_large_ones_share_out_their_time() {
        let large = Fault::ALL.iter().filter(|f| f.is_large());
        assert_eq!(large.map(|f| u64::from(f.usual())).sum::<u64>(), SHARES);
    }
}
