//! What a run consists of.

use crate::bounds::{self, DEVICE_LONG_PPM};
use crate::dice::Dice;
use crate::fault::{Fault, Faults};
use crate::layout::{self, DISKS_MAX, LOCKSPACES_MAX};
use sanlock_lease::geometry::Geometry;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_wdmd::decide::test_interval;

/// Io timeout and watchdog fire timeout that go together.
const TIMES: [(u32, u32); 7] = [(10, 60), (5, 60), (3, 60), (5, 20), (2, 30), (2, 10), (1, 10)];

/// Those of tight runs: what is late lands soon.
const TIGHT_TIMES: [(u32, u32); 3] = [(5, 20), (2, 10), (1, 10)];

/// Those of long runs: what is configured in earnest.
const LONG_TIMES: [(u32, u32); 4] = [(10, 60), (10, 60), (5, 60), (3, 60)];
/// In long runs somebody asks for a lease, or sets a host event, this many times less often than in dense ones.
const SELDOMER: u64 = 15;
/// Hosts at most.
pub const HOSTS_MAX: u64 = 64;
/// Longest storm: a month.
pub const STORMY_SECS_MAX: u64 = 30 * 24 * 3600;

/// How a run's settings are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Minutes full of everything at once, also with the shortest io timeouts: what takes many faults in a row.
    Dense,
    /// Hours with io timeouts as in earnest, leases held for minutes, and now and then a fault: thousands of renewals and turns, and
    /// what takes a rare coincidence.
    Long,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Dense, Self::Long];

    /// Its name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Long => "long",
        }
    }

    /// The settings of this seed.
    #[must_use]
    pub fn settings(self, seed: u64, references: u64) -> Settings {
        let mut dice = Dice::new(seed ^ 0x5e77);
        match self {
            Self::Dense => Settings::draw(&mut dice, references),
            Self::Long => Settings::long(&mut dice, references),
        }
    }
}

/// The parameters of a run besides its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Hosts that run our machines.
    pub ours: u64,
    /// Hosts that run the reference peer.
    pub references: u64,
    /// Disks, each with a lockspace.
    pub disks: u8,
    /// Disks that each resource lies on, from its lockspace's on.
    pub legs: u8,
    /// Larger faults out of a thousand that concern a disk as such: lost by all hosts, or back with old content.
    pub disk_faults_per_mille: u64,
    /// One of the disks without a lockspace fails for ever, where a majority is left.
    pub dead_disk: bool,
    /// Resources on each disk.
    pub resources: u8,
    /// `num_hosts` of the resources, at least the number of hosts.
    pub num_hosts: u64,
    /// Processes of a host of ours.
    pub processes: u32,
    /// The io timeout of most hosts, and the longest one.
    pub io_timeout: IoTimeout,
    /// Hosts out of a thousand with another one, down to the shortest that goes with the fire timeout.
    pub other_timeouts_per_mille: u64,
    /// Lockspaces out of a thousand that are joined with another io timeout than the daemon's own, a new one each time.
    pub join_timeouts_per_mille: u64,
    /// Everybody's watchdog fire timeout.
    pub fire: WatchdogFire,
    /// Seconds of gentle killing.
    pub grace_secs: u64,
    /// Clocks gain or lose up to this much; [`crate::bounds`] says how much they may.
    pub drift_ppm: u64,
    /// Watchdog devices run long by up to this much.
    pub device_long_ppm: u64,
    /// For so long a whole machine stands still, its clock and its watchdog device too, in any stretch of 8T + F.
    pub lag_ms: u64,
    /// Operations out of a thousand that exceed their limit.
    pub timeouts_per_mille: u64,
    /// Operations out of a thousand that fail with an error.
    pub errors_per_mille: u64,
    /// Leaders of our hosts out of a thousand that are written late or fail, besides.
    pub leader_trouble_per_mille: u64,
    /// Operations out of a thousand that are slow, within their limit.
    pub slow_per_mille: u64,
    /// How often each kind of fault strikes.
    pub faults: Faults,
    /// Mean time between larger faults (lost paths, pauses, crashes, …). 0: there are none.
    pub chaos_mean_secs: u64,
    /// Longest time a process holds a lease.
    pub hold_ms: u64,
    /// Longest time between two leases of a process.
    pub pause_ms: u64,
    /// Acquires out of a thousand that ask for a shared hold. 0: nothing is shared, and nothing converted.
    pub shared_per_mille: u64,
    /// Resources out of a thousand that are asked for with PERSISTENT. 0: there are no orphans.
    pub persistent_per_mille: u64,
    /// How often out of a thousand an administrator who looks after a lockspace has orphans count there from then on (USED_BY_ORPHANS).
    /// 0: nobody ever does.
    pub orphans_count_per_mille: u64,
    /// Acquires out of a thousand that ask for the value block. 0: holders do nothing but hold.
    pub values_per_mille: u64,
    /// Releases of an exclusive hold out of a thousand that give the lease its other name.
    pub renames_per_mille: u64,
    /// Acquires out of a thousand that demand a version, and as many that change the number of hosts.
    pub demands_per_mille: u64,
    /// Machines out of a thousand that start, or start a daemon, with another host id than their own: one that nobody has, or another
    /// machine's.
    pub misconfigured_per_mille: u64,
    /// Daemons out of a thousand that start with a new host name.
    pub renamed_per_mille: u64,
    /// How long faults go on.
    pub stormy_secs: u64,
    /// Mean time between requests for leases of others. 0: nobody asks.
    pub request_mean_secs: u64,
    /// Mean time between host events. 0: there are none, and nobody listens.
    pub event_mean_secs: u64,
    /// Mean time between formats of resources that nobody uses. 0: there are none.
    pub format_mean_secs: u64,
    /// Writes of a format out of a thousand in the middle of which the power of its host is cut.
    pub format_cuts_per_mille: u64,
    /// Sector and align size of everything.
    pub geometry: Geometry,
    /// Hosts out of a thousand that name another resource's place for one disk of three.
    pub wrong_legs_per_mille: u64,
    /// Hosts of ours out of a thousand whose wdmd is an old one, which lets clients onto a host that one which has ended is going to have reset.
    pub old_wdmds_per_mille: u64,
}

impl Settings {
    /// The quietest run there is: what its text does not name is as here.
    #[must_use]
    pub fn quiet() -> Self {
        Self {
            ours: 2,
            references: 0,
            disks: 1,
            legs: 1,
            disk_faults_per_mille: 0,
            dead_disk: false,
            resources: 1,
            num_hosts: 0,
            processes: 1,
            io_timeout: IoTimeout::DEFAULT,
            other_timeouts_per_mille: 0,
            join_timeouts_per_mille: 0,
            fire: WatchdogFire::DEFAULT,
            grace_secs: 40,
            drift_ppm: 0,
            device_long_ppm: 0,
            lag_ms: 0,
            timeouts_per_mille: 0,
            errors_per_mille: 0,
            leader_trouble_per_mille: 0,
            slow_per_mille: 0,
            faults: Faults::NONE,
            chaos_mean_secs: 60,
            hold_ms: 1_000,
            pause_ms: 4_000,
            shared_per_mille: 0,
            persistent_per_mille: 0,
            orphans_count_per_mille: 0,
            values_per_mille: 0,
            renames_per_mille: 0,
            demands_per_mille: 0,
            misconfigured_per_mille: 0,
            renamed_per_mille: 0,
            stormy_secs: 60,
            request_mean_secs: 0,
            event_mean_secs: 0,
            geometry: layout::GEOMETRY,
            format_mean_secs: 0,
            format_cuts_per_mille: 0,
            wrong_legs_per_mille: 0,
            old_wdmds_per_mille: 0,
        }
    }

    /// Whether there is a run with these.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        let ranges = [
            ("ours", self.ours, 1, HOSTS_MAX),
            ("references", self.references, 0, HOSTS_MAX),
            ("disks", u64::from(self.disks), 1, u64::from(LOCKSPACES_MAX)),
            ("legs", u64::from(self.legs), 1, if self.references > 0 { 1 } else { u64::from(DISKS_MAX) }),
            ("disk_faults_per_mille", self.disk_faults_per_mille, 0, 1000),
            ("resources", u64::from(self.resources), 1, u64::from(layout::RESOURCES_MAX)),
            ("num_hosts", self.num_hosts, 0, u64::from(self.geometry.max_hosts())),
            ("processes", u64::from(self.processes), 1, 64),
            ("grace_secs", self.grace_secs, 0, 600),
            ("io_timeout", self.io_timeout.secs(), self.shortest_io_timeout(), 600),
            ("other_timeouts_per_mille", self.other_timeouts_per_mille, 0, 1000),
            ("join_timeouts_per_mille", self.join_timeouts_per_mille, 0, 1000),
            ("device_long_ppm", self.device_long_ppm, 0, DEVICE_LONG_PPM),
            ("lag_ms", self.lag_ms, 0, self.lag_ms_max()),
            ("drift_ppm", self.drift_ppm, 0, self.drift_ppm_max()),
            ("timeouts_per_mille", self.timeouts_per_mille, 0, 1000),
            ("errors_per_mille", self.errors_per_mille, 0, 1000),
            ("leader_trouble_per_mille", self.leader_trouble_per_mille, 0, 1000),
            ("slow_per_mille", self.slow_per_mille, 0, 1000),
            ("chaos_mean_secs", self.chaos_mean_secs, 0, STORMY_SECS_MAX),
            ("hold_ms", self.hold_ms, 1, STORMY_SECS_MAX * 1000),
            ("pause_ms", self.pause_ms, 1, STORMY_SECS_MAX * 1000),
            ("shared_per_mille", self.shared_per_mille, 0, 1000),
            ("persistent_per_mille", self.persistent_per_mille, 0, 1000),
            ("orphans_count_per_mille", self.orphans_count_per_mille, 0, 1000),
            ("values_per_mille", self.values_per_mille, 0, 1000),
            ("renames_per_mille", self.renames_per_mille, 0, 1000),
            ("demands_per_mille", self.demands_per_mille, 0, 1000),
            ("misconfigured_per_mille", self.misconfigured_per_mille, 0, 1000),
            ("renamed_per_mille", self.renamed_per_mille, 0, 1000),
            ("stormy_secs", self.stormy_secs, 1, STORMY_SECS_MAX),
            ("request_mean_secs", self.request_mean_secs, 0, STORMY_SECS_MAX),
            ("event_mean_secs", self.event_mean_secs, 0, STORMY_SECS_MAX),
            ("format_mean_secs", self.format_mean_secs, 0, STORMY_SECS_MAX),
            ("format_cuts_per_mille", self.format_cuts_per_mille, 0, 1000),
            (
                "wrong_legs_per_mille",
                self.wrong_legs_per_mille,
                0,
                if self.spares_a_leg() { 1000 } else { 0 },
            ),
            ("old_wdmds_per_mille", self.old_wdmds_per_mille, 0, 1000),
        ];
        for (name, value, least, most) in ranges {
            if value < least || value > most {
                return Err(format!("{name}={value} is not between {least} and {most}"));
            }
        }
        Ok(())
    }

    /// How long machines may stand still.
    fn lag_ms_max(&self) -> u64 {
        bounds::spare_ms(self.fire, self.device_long_ppm) * 9 / 10
    }

    /// How wrong clocks may be.
    fn drift_ppm_max(&self) -> u64 {
        let most = bounds::drift_ppm(self.io_timeout, self.fire, self.device_long_ppm, self.lag_ms);
        let originals = bounds::drift_ppm_of_originals(self.io_timeout, self.fire);
        if self.references > 0 { most.min(originals) } else { most }
    }

    /// Settings of a short, dense run, drawn by chance, so that every seed explores another kind of trouble.
    #[must_use]
    pub fn draw(dice: &mut Dice, references: u64) -> Self {
        if references == 0 && dice.per_mille(100) {
            return Self::tight(dice);
        }
        Self::drawn(dice, references, &TIMES)
    }

    /// Settings of a dense run in which three or four hosts fight for one lease, whose leaders land late or fail a fifth of the time: what leaves
    /// older leaders, and holds of unknown outcome. One dense run of our hosts in ten is one.
    #[must_use]
    pub fn tight(dice: &mut Dice) -> Self {
        let drawn = Self::drawn(dice, 0, &TIGHT_TIMES);
        let legs = [1, 3, 3, 4][usize::try_from(dice.between(0, 3)).unwrap_or(0)];
        Self {
            ours: dice.between(3, 4),
            disks: 1,
            resources: 1,
            legs,
            dead_disk: false,
            wrong_legs_per_mille: 0,
            num_hosts: dice.between(4, 12),
            leader_trouble_per_mille: 200,
            hold_ms: dice.spread(50, 1000),
            pause_ms: dice.spread(1, 100),
            shared_per_mille: dice.between(0, 200),
            persistent_per_mille: 0,
            renames_per_mille: 300,
            demands_per_mille: 150,
            disk_faults_per_mille: 900,
            chaos_mean_secs: dice.spread(2, 10),
            request_mean_secs: 0,
            event_mean_secs: 0,
            format_mean_secs: 0,
            ..drawn
        }
    }

    /// Settings of a long, calmer run, drawn by chance.
    #[must_use]
    pub fn long(dice: &mut Dice, references: u64) -> Self {
        let drawn = Self {
            timeouts_per_mille: if dice.per_mille(300) { 0 } else { dice.spread(1, 5) },
            errors_per_mille: if dice.per_mille(300) { 0 } else { dice.spread(1, 5) },
            slow_per_mille: dice.spread(1, 50),
            chaos_mean_secs: dice.spread(120, 3600),
            hold_ms: dice.spread(10_000, 1_800_000),
            pause_ms: dice.spread(30_001, 600_000),
            stormy_secs: dice.spread(3600, 8 * 3600),
            ..Self::drawn(dice, references, &LONG_TIMES)
        };
        let (requests, events) = (drawn.request_mean_secs * SELDOMER, drawn.event_mean_secs * SELDOMER);
        let formats = drawn.format_mean_secs * SELDOMER;
        Self { request_mean_secs: requests, event_mean_secs: events, format_mean_secs: formats, ..drawn }
    }

    fn drawn(dice: &mut Dice, references: u64, times: &[(u32, u32)]) -> Self {
        let drawn = Self::drawn_but_for_few(dice, references, times);
        let wrong = if drawn.spares_a_leg() && dice.per_mille(500) { dice.spread(100, 1000) } else { 0 };
        let old = if dice.per_mille(500) { 0 } else { dice.spread(100, 1000) };
        Self { wrong_legs_per_mille: wrong, old_wdmds_per_mille: old, ..drawn }
    }

    fn drawn_but_for_few(dice: &mut Dice, references: u64, times: &[(u32, u32)]) -> Self {
        let at = usize::try_from(dice.between(0, times.len() as u64 - 1)).unwrap_or(0);
        let (io, fire) = times[at];
        let io_timeout = IoTimeout::new(io).unwrap_or(IoTimeout::DEFAULT);
        let fire = WatchdogFire::new(fire).unwrap_or(WatchdogFire::DEFAULT);
        let (drift_ppm, device_long_ppm, lag_ms) = Self::draw_clocks(dice, references, io_timeout, fire);
        let many = dice.per_mille(150);
        let mistakes = if dice.per_mille(600) { 0 } else { dice.spread(20, 600) };
        Self {
            ours: if many { dice.spread(5, 16) } else { dice.between(2, 5) },
            references,
            disks: 1 + u8::from(dice.per_mille(500)) % LOCKSPACES_MAX,
            resources: 1 + u8::from(dice.per_mille(300)),
            legs: if references > 0 || dice.per_mille(550) { 1 } else { 2 + u8::from(dice.per_mille(750)) },
            disk_faults_per_mille: dice.spread(50, 600),
            dead_disk: dice.per_mille(400),
            num_hosts: dice.between(0, 12),
            processes: 1 + u32::from(dice.per_mille(600)) + u32::from(dice.per_mille(200)),
            io_timeout,
            other_timeouts_per_mille: if dice.per_mille(200) { 0 } else { dice.spread(100, 1000) },
            fire,
            grace_secs: if dice.per_mille(500) { 40 } else { dice.between(0, 20) },
            drift_ppm,
            device_long_ppm,
            lag_ms,
            timeouts_per_mille: if dice.per_mille(250) { 0 } else { dice.spread(1, 60) },
            errors_per_mille: if dice.per_mille(300) { 0 } else { dice.spread(1, 40) },
            leader_trouble_per_mille: 0,
            slow_per_mille: dice.spread(1, 300),
            faults: Self::draw_faults(dice),
            chaos_mean_secs: dice.spread(5, 300),
            hold_ms: dice.spread(1, 20_000),
            pause_ms: 4_000,
            shared_per_mille: if dice.per_mille(300) { 0 } else { dice.spread(100, 950) },
            persistent_per_mille: if dice.per_mille(600) { 0 } else { dice.spread(20, 700) },
            values_per_mille: if dice.per_mille(400) { 0 } else { dice.spread(200, 1000) },
            renames_per_mille: if dice.per_mille(500) || references > 0 { 0 } else { dice.spread(20, 500) },
            demands_per_mille: if dice.per_mille(500) { 0 } else { dice.spread(10, 200) },
            misconfigured_per_mille: mistakes,
            renamed_per_mille: if dice.per_mille(500) { 0 } else { dice.spread(20, 1000) },
            stormy_secs: dice.between(100, 500),
            request_mean_secs: if dice.per_mille(500) { 0 } else { dice.spread(2, 60) },
            event_mean_secs: if dice.per_mille(600) { 0 } else { dice.spread(5, 60) },
            geometry: Self::draw_geometry(dice),
            format_mean_secs: if dice.per_mille(500) { 0 } else { dice.spread(5, 60) },
            format_cuts_per_mille: if dice.per_mille(200) { 0 } else { dice.spread(10, 300) },
            orphans_count_per_mille: if dice.per_mille(400) { 0 } else { dice.spread(20, 1000) },
            join_timeouts_per_mille: if dice.per_mille(500) { 0 } else { dice.spread(100, 1000) },
            wrong_legs_per_mille: 0,
            old_wdmds_per_mille: 0,
        }
    }

    /// Half of the runs have the sizes that files have by default, the others any of those that the format knows.
    fn draw_geometry(dice: &mut Dice) -> Geometry {
        let last = Geometry::ALL.len() as u64 - 1;
        let any = Geometry::ALL[usize::try_from(dice.between(0, last)).unwrap_or(0)];
        if dice.per_mille(500) { layout::GEOMETRY } else { any }
    }

    /// How wrong clocks and devices are, and how long machines stand still: nothing, as much as there may be of one of them, or
    /// something of each.
    fn draw_clocks(
        dice: &mut Dice,
        references: u64,
        io_timeout: IoTimeout,
        fire: WatchdogFire,
    ) -> (u64, u64, u64) {
        let device = if dice.per_mille(400) { 0 } else { dice.between(1, DEVICE_LONG_PPM) };
        let spare = bounds::spare_ms(fire, device);
        let lag = if dice.per_mille(600) { 0 } else { dice.between(1, spare * 9 / 10) };
        let most = bounds::drift_ppm(io_timeout, fire, device, lag);
        let originals = bounds::drift_ppm_of_originals(io_timeout, fire);
        let most = if references > 0 { most.min(originals) } else { most };
        let drift = match dice.between(0, 9) {
            0..=2 => 0,
            3..=5 => dice.between(0, most),
            _ => most,
        };
        (drift, device, lag)
    }

    /// The shortest io timeout that goes with the fire timeout (rule R11).
    #[must_use]
    pub fn shortest_io_timeout(&self) -> u64 {
        let fire = u32::try_from(self.fire.secs()).unwrap_or(u32::MAX);
        u64::from(test_interval(fire)) / 6 + 1
    }

    /// Host ids there are: one for each machine, and one that nobody should have.
    #[must_use]
    pub fn host_ids(&self) -> u64 {
        self.ours + self.references + 1
    }

    /// Disks with anything on them.
    #[must_use]
    pub fn all_disks(&self) -> u8 {
        (self.disks + self.legs - 1).min(DISKS_MAX)
    }

    /// Whether a lease has a majority without a disk that somebody names by mistake, for good.
    fn spares_a_leg(&self) -> bool {
        self.legs == 3 && !self.dead_disk
    }

    /// Whether leases are held and left alone for minutes, and hardly ever for less than a hundredth of that. In other runs they may
    /// be for microseconds.
    #[must_use]
    pub fn is_earnest(&self) -> bool {
        self.pause_ms.max(self.hold_ms) > 30_000
    }

    /// All kinds of faults, or only some: with fewer of them others have their day.
    fn draw_faults(dice: &mut Dice) -> Faults {
        let mut faults = Faults::usual();
        if dice.per_mille(500) {
            for fault in Fault::ALL {
                if dice.per_mille(250) {
                    faults.set(*fault, 0);
                }
            }
        }
        faults
    }

    /// The numbers of the resources.
    pub fn all_resources(&self) -> impl Iterator<Item = u8> + use<> {
        layout::resources(self.disks, self.resources)
    }

    /// How long the run goes on without faults, at least: long enough for every dead host to be noticed and for everybody to have a turn.
    #[must_use]
    pub fn calm_secs(&self) -> u64 {
        // Twice as much to ask for if everything is asked for in two modes.
        let more = if self.shared_per_mille > 0 { 40 * self.all_resources().count() as u64 } else { 0 };
        3 * self.io_timeout.host_dead_secs(self.fire) + 100 + more
    }
}
