//! The worked timelines of lease-algorithms.md 10.4 and 16, played with the production code.

use sanlock_lease::delta::renew::{Corrupt, RenewOutcome};
use sanlock_lease::delta::{DeltaAcquire, DeltaConfig, Instance, JoinError, Joined, Renewal};
use sanlock_lease::hosts::judged_by;
use sanlock_lease::machine::{Machine, Op};
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use sanlock_sim::checks::Marks;
use sanlock_sim::layout::{self, host_id};
use sanlock_sim::settings::Settings;
use sanlock_sim::stage::{Actor, Stage};
use sanlock_sim::world::World;

const SECOND: u64 = 1_000_000;

/// Two hosts on one disk that want one lease, and no trouble at all.
fn quiet(io: u32, fire: u32, grace_secs: u64, seed: u64) -> World {
    World::new(calm(io, fire, grace_secs), seed, true)
}

fn calm(io: u32, fire: u32, grace_secs: u64) -> Settings {
    Settings {
        io_timeout: IoTimeout::new(io).unwrap_or(IoTimeout::DEFAULT),
        fire: WatchdogFire::new(fire).unwrap_or(WatchdogFire::DEFAULT),
        grace_secs,
        hold_ms: 20_000,
        stormy_secs: 100_000,
        ..Settings::quiet()
    }
}

/// A process that nothing can stop holds the lease, and right after a renewal its host loses its storage: host and time.
fn cut_off(world: &mut World) -> (usize, u64) {
    assert!(world.run_until(1000 * SECOND, |w| w.now > 100 * SECOND && w.who_holds(0).is_some()));
    let Some((host, pid)) = world.who_holds(0) else { panic!("nobody holds it") };
    world.clings(host, pid);
    let (before, _) = world.renewal(host, 0);
    assert!(world.run_until(world.now + 100 * SECOND, |w| w.renewal(host, 0).0 != before));
    world.cut(host, 0);
    (host, world.now)
}

/// Seconds of the lines of the log that contain this, from the time given on.
fn times(world: &World, from: u64, what: &str) -> Vec<f64> {
    let lines = world.log_tail(usize::MAX);
    let at = |line: &String| line.split_whitespace().next().and_then(|s| s.parse::<f64>().ok());
    let found = lines.iter().filter(|line| line.contains(what)).filter_map(at);
    found.map(|at| at - from as f64 / 1e6).filter(|at| *at >= 0.0).collect()
}

/// 10.4: the storage of a host dies right after a renewal, and a process that nothing can stop holds a lease. Warnings from 6T on,
/// failed and SIGTERM at 8T, SIGKILL at 8T + grace, reset before 8T + F, and the lease is somebody else's after that.
fn storage_dies(io: u32, fire: u32, grace: u64, seed: u64) {
    let mut world = quiet(io, fire, grace, seed);
    let (t, f) = (u64::from(io), u64::from(fire));
    let (host, zero) = cut_off(&mut world);
    let end = zero + 3 * (8 * t + f) * SECOND;
    let other = host_id(2 - host as u64);
    assert!(world.run_until(end, |w| w.checks.holder(0).is_some_and(|h| h.host == other)));
    assert!(world.checks.violations.is_empty(), "{:?}", world.checks.violations);

    let first = |what| times(&world, zero, what).first().copied();
    let within = |what: &str, at: Option<f64>, low: u64, high: u64| {
        let at = at.unwrap_or_else(|| panic!("T {t} F {f}: never: {what}"));
        assert!(
            (low as f64 - 1.0..=high as f64 + 2.0).contains(&at),
            "T {t} F {f}: {what} at {at}, not in {low}..{high}"
        );
        at
    };
    within("failed", first("front does Gone"), 8 * t, 8 * t);
    let terms = times(&world, zero, "signal: Term");
    within("the first signal", first("signal: "), 8 * t, 8 * t);
    assert!(terms.len() as u64 <= grace + 3, "one attempt a second: {terms:?}");
    let reset = within("reset", first("reset by its watchdog"), 8 * t, 8 * t + f);
    assert!(reset <= (8 * t + f) as f64, "reset at {reset}");
    let kill = first("signal: Kill");
    if (8 * t + grace + 2) as f64 <= reset {
        within("SIGKILL", kill, 8 * t + grace, 8 * t + grace);
    }
    let granted = world.now - zero;
    // When exactly is a matter of when the other host's process asks.
    assert!(granted > (8 * t + f) * SECOND, "taken over after {granted} us");
    assert!(reset < granted as f64 / 1e6);
}

#[test]
fn lease_algorithms_10_4_the_storage_of_a_host_dies() {
    // T, F, grace; the columns of 10.4, and those of wdmd.md 12.
    for (io, fire, grace) in [(10, 60, 34), (5, 60, 34), (3, 60, 34), (5, 30, 10), (2, 10, 0), (1, 10, 0)] {
        for seed in 1..=10 {
            storage_dies(io, fire, grace, seed);
        }
    }
}

/// 10.4, with storage that comes back shortly before the device fires, and messages that take their time: what is renewed then comes too
/// late, and the reset is no unjust one (W1). Whoever looks at the age of the last renewal alone sees a host whose leases are all young.
#[test]
fn a_renewal_just_before_the_reset_comes_too_late() {
    let slow = "slow-message:1000".parse().expect("a kind of fault");
    let mut too_late = 0;
    for seed in 1..=180 {
        let mut world = World::new(Settings { faults: slow, ..calm(1, 10, 0) }, seed, true);
        let (host, zero) = cut_off(&mut world);
        let returns = zero + (8_000 + seed % 60 * 50) * 1000;
        assert!(world.run_until(zero + 100 * SECOND, |w| w.now >= returns));
        world.mend(host, 0);
        assert!(world.run_until(zero + 100 * SECOND, |w| w.now >= zero + 30 * SECOND));
        assert!(world.checks.violations.is_empty(), "seed {seed}: {:?}", world.checks.violations);
        let what = format!("{:?} Renewal(1) done: Renewal(Renewed", host_id(host as u64 + 1));
        let renewed = times(&world, returns, &what).first().copied();
        let reset = times(&world, returns, "reset by its watchdog").first().copied();
        too_late += u32::from(renewed.zip(reset).is_some_and(|(renewed, reset)| renewed < reset));
    }
    assert!(too_late > 0, "no renewal came shortly before a reset");
}

/// CE6: the daemon of a host whose process nothing can stop crashes, and the next one, right after it, finds its own name on the host_id lease. It does
/// not take that at once, and nobody has the process's lease before the watchdog has reset the host. Our wdmd refuses it a device that is going to
/// reset the host anyway; others do not.
#[test]
fn a_daemon_that_crashed_is_waited_for_by_the_next_one_while_its_processes_live() {
    for (seed, old_wdmd) in (1..=5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = quiet(10, 60, 34, seed);
        if old_wdmd {
            (0..2).for_each(|host| world.old_wdmd(host));
        }
        assert!(world.run_until(1000 * SECOND, |w| w.now > 100 * SECOND && w.who_holds(0).is_some()));
        let Some((host, pid)) = world.who_holds(0) else { panic!("nobody holds it") };
        world.clings(host, pid);
        world.crash(host);
        let zero = world.now;
        let other = host_id(2 - host as u64);
        let end = zero + 400 * SECOND;
        let taken_over = world.run_until(end, |w| w.checks.holder(0).is_some_and(|h| h.host == other));
        assert!(world.checks.violations.is_empty(), "seed {seed}: {:?}", world.checks.violations);
        assert!(taken_over, "seed {seed}");
        assert_eq!(times(&world, zero, "reset by its watchdog").len(), 1, "seed {seed}");
        assert_eq!(world.checks.marks.let_onto_doomed_hosts > 0, old_wdmd, "seed {seed}");
    }
}

fn joining(id: u64, name: &str, io: u32) -> DeltaAcquire {
    rejoining(id, name, io, None)
}

/// The same, vouching for an earlier instance of that generation.
fn rejoining(id: u64, name: &str, io: u32, vouched: Option<u64>) -> DeltaAcquire {
    DeltaAcquire::new(configured(id, name, io), vouched)
}

fn configured(id: u64, name: &str, io: u32) -> DeltaConfig {
    DeltaConfig {
        lockspace: layout::lockspace(0),
        host: host_id(id),
        host_name: layout::name(name),
        io_timeout: IoTimeout::new(io).unwrap_or(IoTimeout::DEFAULT),
        fire: WatchdogFire::DEFAULT,
    }
}

/// Up to the next write, which is taken out of the actor's hands and lands when the script says so.
fn next_write<M: Machine>(stage: &mut Stage, actor: &mut Actor<M>) -> Op {
    for _ in 0..1000 {
        if let Some(op) = actor.take_write() {
            return op;
        }
        stage.one(actor);
    }
    panic!("no write");
}

/// 16.1: free, the join takes 2T; the sequence is sizes, own sector, write, and after 2T own sector again.
#[test]
fn lease_algorithms_16_1_a_join_of_a_free_host_id() {
    let mut stage = Stage::new(3);
    stage.leave(1, 4);
    let begin = stage.now;
    let mut join = stage.enter(joining(1, "machine-1", 10), 1);
    let joined = stage.to_end(&mut join).unwrap();
    assert_eq!((joined.generation(), joined.last_good), (5, begin));
    assert_eq!(stage.now.secs_since(begin), 20);
    assert_eq!(joined.leader.timestamp.get(), begin.secs());
}

/// Two machines that see one host id free at the same time. The first one's write has landed, and it knows; the second one's is under way.
struct Claims {
    stage: Stage,
    first: Actor<DeltaAcquire>,
    second: Actor<DeltaAcquire>,
    slow: Op,
}

impl Claims {
    /// The io timeouts are those on disk and of the two machines.
    fn begin(found: u32, first: u32, second: u32) -> Self {
        let mut stage = Stage::new(3);
        stage.leave_with(1, 4, IoTimeout::new(found).unwrap_or_else(|e| panic!("{e}")));
        let mut first = stage.enter(joining(1, "machine-a", first), 1);
        let mut second = stage.enter(joining(1, "machine-b", second), 1);
        let prompt = next_write(&mut stage, &mut first);
        let slow = next_write(&mut stage, &mut second);
        stage.land(&prompt);
        stage.completed(&mut first, &prompt);
        Self { stage, first, second, slow }
    }

    /// The second one's write lands, so many seconds from now.
    fn land_slowly(&mut self, secs: u64) {
        self.stage.now = self.stage.now.plus_secs(secs);
        assert!(self.stage.now < self.slow.deadline, "within its limit");
        self.stage.land(&self.slow);
        self.stage.completed(&mut self.second, &self.slow);
    }

    fn only_the_second_one_joins(&mut self) {
        assert!(self.stage.to_end(&mut self.first).is_err(), "it was overwritten before it looked again");
        assert!(self.stage.to_end(&mut self.second).is_ok());
    }
}

/// The renewal reads another owner's record, and neither writes it again nor anything else.
fn finds_another_owner(stage: &mut Stage, renewal: Renewal) {
    let before = layout::delta_on(&stage.disk, 0, host_id(1));
    let mut renewal = stage.enter(renewal, 1);
    let outcome = *stage.to_end(&mut renewal);
    assert!(matches!(outcome, RenewOutcome::Corrupt(Corrupt::Owner { .. })), "{outcome:?}");
    assert_eq!(layout::delta_on(&stage.disk, 0, host_id(1)), before);
}

/// 13.4, 6: two machines with one host id and one io timeout see it free at the same time. However slow the write of one is, within its
/// limit, one of them loses.
#[test]
fn lease_algorithms_13_4_of_two_claims_with_one_io_timeout_one_loses() {
    for slow_secs in 0..10 {
        let mut claims = Claims::begin(10, 10, 10);
        claims.land_slowly(slow_secs);
        claims.only_the_second_one_joins();
    }
}

/// The same with different io timeouts: the write of the one may take longer than the other one waits. It has overwritten the other's record
/// then, which that one finds with its next renewal, but it does not rely on it.
#[test]
fn of_two_claims_with_different_io_timeouts_one_loses_too() {
    const SETTLING: u64 = 2;
    for slow_secs in 0..SETTLING {
        let mut claims = Claims::begin(1, 1, 10);
        claims.land_slowly(slow_secs);
        claims.only_the_second_one_joins();
    }
    for slow_secs in SETTLING..10 {
        let mut claims = Claims::begin(1, 1, 10);
        let first = claims.stage.to_end(&mut claims.first).unwrap();
        claims.land_slowly(slow_secs - SETTLING);
        finds_another_owner(&mut claims.stage, Renewal::new(configured(1, "machine-a", 1), &first));
        let second = claims.stage.to_end(&mut claims.second);
        assert!(matches!(second, Err(JoinError::StoodStill { .. })), "{slow_secs} s");
    }
}

/// A claim fails in doubt, and its daemon ends. The next one has a longer io timeout, and joins before the claim lands. By the record that is there
/// then, nobody may take the host for dead after the shorter time.
#[test]
fn a_claim_in_doubt_that_lands_late_shortens_nobodys_io_timeout() {
    let mut stage = Stage::new(3);
    stage.leave(1, 4);
    let mut first = stage.enter(joining(1, "machine-1", 1), 1);
    let claim = next_write(&mut stage, &mut first);
    stage.doubtful(&mut first, &claim);
    assert!(stage.to_end(&mut first).is_err());
    let second = joining(1, "machine-1", 10).above(5);
    let mut second = stage.enter(second, 1);
    let joined = stage.to_end(&mut second).unwrap();
    stage.land(&claim);
    let found = layout::delta_on(&stage.disk, 0, host_id(1));
    assert_eq!((found.owner_generation.get(), found.io_timeout.get()), (5, 1));
    // By a host that looks for the first time, and has a short io timeout itself.
    let short = IoTimeout::new(1).unwrap_or_else(|e| panic!("{e}"));
    let judged_by = judged_by(&found, joined.generation(), None, short);
    assert!(judged_by.secs() >= 10, "{judged_by:?}");
}

/// A has joined, and the write of its first renewal has not landed.
fn renewing() -> (Stage, Joined, Actor<Renewal>, Op) {
    let mut stage = Stage::new(3);
    stage.leave(1, 0);
    let mut a = stage.enter(joining(1, "machine-a", 10), 1);
    let a = stage.to_end(&mut a).unwrap_or_else(|e| panic!("{e}"));
    let mut renewal = stage.enter(Renewal::new(configured(1, "machine-a", 10), &a), a.generation());
    let written = next_write(&mut stage, &mut renewal);
    (stage, a, renewal, written)
}

/// A's renewal hangs, and B, another machine with the same host id, takes it with the next generation.
struct Taken {
    stage: Stage,
    a: Joined,
    renewal: Actor<Renewal>,
    /// A's, which has not landed.
    written: Op,
    b: Joined,
}

impl Taken {
    fn under_a_renewal_that_hangs() -> Self {
        Self::with(10)
    }

    /// B has this io timeout.
    fn with(io: u32) -> Self {
        let (mut stage, a, renewal, written) = renewing();
        let mut b = stage.enter(joining(1, "machine-b", io), 1);
        let b = stage.to_end(&mut b).unwrap_or_else(|e| panic!("{e}"));
        Self { stage, a, renewal, written, b }
    }
}

/// Outside the assumptions (A8, A7), found by the simulator. A's renewal hangs for longer than 8T + F; B, configured with the same host
/// id, takes it with the next generation; then A's renewal lands over B's record. A finds the record of its former instance and knows
/// that nothing of that is left. If it then did not wait it would take the very generation that B has, while B is alive.
#[test]
fn a_renewal_that_landed_when_others_might_have_the_host_id_ends_the_fast_rejoin() {
    let Taken { mut stage, a, mut renewal, written, b } = Taken::under_a_renewal_that_hangs();
    assert_eq!(b.generation(), a.generation() + 1);
    // What hung all the time. B is alive, and has not looked yet.
    stage.land(&written);
    stage.completed_late(&mut renewal, &written);
    let sole = renewal.machine().sole_if_ended_before().is_none_or(|end| stage.now < end);
    assert!(!sole, "the daemon must not vouch for it");

    // So A waits until B, whose next renewal finds A's record, has been stopped or reset.
    finds_another_owner(&mut stage, Renewal::new(configured(1, "machine-b", 10), &b));
    let begin = stage.now;
    let mut again = stage.enter(joining(1, "machine-a", 10), 1);
    stage.to_end(&mut again).unwrap_or_else(|e| panic!("{e}"));
    assert!(stage.now.secs_since(begin) > 8 * 10 + 60);
    // Vouched for, it would have been in time to meet it.
    let mut stage = Stage::new(3);
    stage.land_delta(1, a.leader);
    let begin = stage.now;
    let mut again = stage.enter(rejoining(1, "machine-a", 10, Some(a.generation())), 1);
    let again = stage.to_end(&mut again).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((again.generation(), stage.now.secs_since(begin)), (b.generation(), 20));
}

/// W14, outside the same assumptions: A's renewal has landed over the record of B, which was newer. B, started anew on the same machine, remembers its
/// own generation, which somebody may have seen: the next one is larger than that, whatever the disk says.
#[test]
fn a_generation_that_an_old_write_has_taken_back_is_not_used_again() {
    let Taken { mut stage, a, written, b, .. } = Taken::under_a_renewal_that_hangs();
    stage.land(&written);

    let mut again = stage.enter(joining(1, "machine-b", 10).remembering(Some(instance(&b))), 1);
    let again = stage.to_end(&mut again).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((a.generation(), b.generation(), again.generation()), (1, 2, 3));
}

/// The same, with io timeouts that differ: what is on disk is A's, and B, of which the daemon has ended and a process may be left, is judged by its own.
#[test]
fn an_instance_that_an_old_write_hides_is_waited_for_by_its_own_io_timeout() {
    let Taken { mut stage, written, b, .. } = Taken::with(20);
    stage.land(&written);

    let begin = stage.now;
    let mut again = stage.enter(joining(1, "machine-b", 10).remembering(Some(instance(&b))), 1);
    stage.to_end(&mut again).unwrap_or_else(|e| panic!("{e}"));
    assert!(stage.now.secs_since(begin) > 8 * 20 + 60, "after {} s", stage.now.secs_since(begin));
}

fn instance(of: &Joined) -> Instance {
    let io_timeout = u32::from(of.leader.io_timeout.get());
    Instance {
        generation: of.generation(),
        io_timeout: IoTimeout::new(io_timeout).unwrap_or_else(|e| panic!("{e}")),
    }
}

/// 2.5, under A7: a renewal fails, the next one succeeds, and then the failed one lands over it. What is on disk is the host's own and older
/// than what it wrote last, so it is renewed over, and the host id is not given up.
#[test]
fn a_failed_renewal_that_lands_over_a_good_one_is_renewed_over() {
    let (mut stage, _, mut renewal, failed) = renewing();
    stage.doubtful(&mut renewal, &failed);
    assert!(matches!(stage.to_end(&mut renewal), RenewOutcome::Failed(_)));

    let timestamp = |stage: &Stage| layout::delta_on(&stage.disk, 0, host_id(1)).timestamp.get();
    let mut last = 0;
    for lands_after in [true, false, false] {
        stage.now = stage.now.plus_secs(1);
        stage.again(&mut renewal);
        let outcome = *stage.to_end(&mut renewal);
        assert!(matches!(outcome, RenewOutcome::Renewed(_)), "{outcome:?}");
        assert!(timestamp(&stage) > last);
        last = timestamp(&stage);
        if lands_after {
            stage.land(&failed);
            assert!(timestamp(&stage) < last);
        }
    }
}

/// Four hosts that fight for a lease, and give it its other name most of the time, on a disk that is slow now and then.
fn names_fought_over(seed: u64) -> World {
    let settings = Settings {
        ours: 4,
        slow_per_mille: 300,
        renames_per_mille: 700,
        hold_ms: 300,
        pause_ms: 500,
        stormy_secs: 3000,
        ..Settings::quiet()
    };
    World::new(settings, seed, false)
}

/// A host commits another one's value late, with the name that the lease had when it read the leader. The owner releases the lease by the
/// name that it knows, and gives it a new one: it is not renamed, but nobody finds it owned for ever (N3).
#[test]
fn a_lease_that_a_slow_commit_took_back_to_another_name_is_given_up() {
    let mut marks = Marks::default();
    for seed in 1..=100 {
        let mut world = names_fought_over(seed);
        assert!(world.run(), "seed {seed}: {:?}", world.checks.violations);
        marks.add(&world.checks.marks);
        if marks.names_taken_back > 0 {
            return;
        }
    }
    panic!("no release found its lease under a name of before: {} renamed", marks.renamed);
}
