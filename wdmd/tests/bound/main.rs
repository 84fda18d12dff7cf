//! The promise to other hosts, proved for the decisions by trying every point at which one thing can go wrong:
//! **after a source's expiry E the device fires at E + F at the latest.** A script that fails is a source whose expiry was that moment.
//!
//! The daemon is killed, or stands still for a while, at every point between two system calls. Two faults that hit the same
//! stretch (it stands still between reading the clock and pinging, and is killed after that) may cost one device timeout D
//! more; that they never cost more than that is checked too.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod world;

use proptest::prelude::*;
use sanlock_wdmd::decide::wanted_device_timeout;
use world::{Act, Fault, Promised, World, live, open};

const FIRE_TIMEOUTS: [u32; 7] = [3, 4, 10, 20, 30, 60, 300];

/// When the clients begin, milliseconds.
const START: i64 = 1_300;

/// A client that arms the device, renews `renewals` times every `lease / 3` seconds and is never heard of again. Its last
/// expiry in seconds is the second result.
fn client(fire: u32, lease: u64, renewals: u64) -> (Vec<(i64, u32, Act)>, u64) {
    let mut acts = vec![(START, 2, Act::Connect), (START + 100, 2, open(fire))];
    let mut expire = 0;
    for renewal in 0..=renewals {
        let at = 2 + renewal * lease.div_ceil(3);
        expire = at + lease;
        acts.push((i64::try_from(at).unwrap() * 1000 + 400, 2, live(at, expire)));
    }
    (acts, expire)
}

fn end_of(expire: u64, fire: u32) -> i64 {
    (i64::try_from(expire).unwrap() + i64::from(fire) * 3 + 100) * 1000
}

/// Late by at most `grace` milliseconds beyond the promise, for every expiry that was accepted.
fn check(world: &World, grace: i64, context: &dyn std::fmt::Debug) {
    let Some(expire) = world.promised.values().min() else { return };
    if world.fire_timeout == 0 {
        return;
    }
    let bound = expire + world.fire_timeout * 1000 + grace;
    match world.fired_at {
        Some(at) => assert!(at <= bound, "fired at {at}, promised by {bound}: {context:?}"),
        None => panic!("never fired, promised by {bound}: {context:?}"),
    }
}

/// Lengths of a stall worth trying: below, around and above the device's timeout and the test interval.
fn stalls(fire: u32) -> Vec<i64> {
    let device = i64::from(wanted_device_timeout(fire).unwrap()) * 1000;
    let mut stalls: Vec<i64> =
        [1, 2, 4, 6, 8, 10, 12, 14, 15].iter().map(|part| device * part / 15).collect();
    stalls.extend([device - 1, device + 1, 2 * device, 1000, 500]);
    stalls
}

#[test]
fn without_a_fault_the_device_fires_in_time_and_not_before_the_expiry() {
    for fire in FIRE_TIMEOUTS {
        for lease in [4, 8, 16, 80] {
            for late in [0, 130] {
                let (acts, expire) = client(fire, lease, 2);
                let world = World::new(acts, late, vec![]).run(end_of(expire, fire));
                check(&world, 0, &(fire, lease, late));
                let expire = i64::try_from(expire).unwrap() * 1000;
                assert!(world.fired_at.unwrap() >= expire, "{fire} {lease}: {:?}", world.fired_at);
            }
        }
    }
}

#[test]
fn one_fault_at_any_point_never_breaks_the_promise() {
    let mut tried = 0;
    for fire in FIRE_TIMEOUTS {
        let faults: Vec<Fault> =
            std::iter::once(Fault::Death).chain(stalls(fire).into_iter().map(Fault::Stall)).collect();
        for (lease, renewals) in [(2, 0), (8, 1), (25, 1)] {
            let (acts, expire) = client(fire, lease, renewals);
            let points = World::new(acts.clone(), 70, vec![]).run(end_of(expire, fire)).points;
            assert!(points > 20, "{points}");
            for point in 0..points {
                for &fault in &faults {
                    let world = World::new(acts.clone(), 70, vec![(point, fault)]).run(end_of(expire, fire));
                    check(&world, 0, &(fire, lease, point, fault));
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 10_000, "{tried}");
}

/// A script that is bad counts as a client whose expiry was the moment it became bad.
#[test]
fn a_bad_script_has_the_host_reset_in_time_whatever_goes_wrong() {
    for fire in FIRE_TIMEOUTS {
        let faults: Vec<Fault> =
            std::iter::once(Fault::Death).chain(stalls(fire).into_iter().map(Fault::Stall)).collect();
        let bad = |good| Act::Script { slot: 1, good };
        for leaves in [false, true] {
            // One that was bad before, and is good again, counts no more.
            let mut acts = vec![(START, 2, Act::Connect), (START + 100, 2, open(fire))];
            acts.extend([(START + 300, 2, bad(false)), (START + 900, 2, bad(true)), (5_700, 2, bad(false))]);
            // That nobody is left who relies on the device saves nobody, and no more do the words of another one.
            if leaves {
                acts.push((6_000, 2, Act::Close));
            } else {
                acts.push((6_000, 2, live(6, 100_000)));
            }
            acts.extend([(6_500, 2, bad(false)), (6_600, 2, Act::Script { slot: 0, good: true })]);
            let run = |faults| World::new(acts.clone(), 70, faults).run(end_of(6, fire));
            let world = run(vec![]);
            check(&world, 0, &(fire, leaves));
            assert!(world.promised.contains_key(&Promised::Script(1)), "{fire} {leaves}");
            assert!(world.fired_at.unwrap() >= 5_700, "{fire} {leaves}: {:?}", world.fired_at);
            for point in 0..world.points {
                for &fault in &faults {
                    check(&run(vec![(point, fault)]), 0, &(fire, leaves, point, fault));
                }
            }
        }
    }
}

#[test]
fn a_stall_and_a_death_cost_at_most_one_device_timeout_more() {
    let mut beyond = 0;
    for fire in [4, 10, 20] {
        let device = i64::from(wanted_device_timeout(fire).unwrap()) * 1000;
        let (acts, expire) = client(fire, 8, 0);
        let end = end_of(expire, fire);
        let points = World::new(acts.clone(), 0, vec![]).run(end).points;
        for first in 0..points {
            for stall in stalls(fire) {
                for second in first + 1..points {
                    let faults = vec![(first, Fault::Stall(stall)), (second, Fault::Death)];
                    let world = World::new(acts.clone(), 0, faults).run(end);
                    check(&world, device, &(fire, first, stall, second));
                    let bound = (i64::try_from(expire).unwrap() + i64::from(fire)) * 1000;
                    beyond += usize::from(!world.promised.is_empty() && world.fired_at.unwrap() > bound);
                }
            }
        }
    }
    // The double fault exists; if it no longer did, the decision's text would be wrong.
    assert!(beyond > 0);
}

#[test]
fn a_driver_that_rounds_down_keeps_the_promise_too() {
    for (fire, rounds) in [(60, 4), (60, 10), (30, 4), (20, 3), (10, 2)] {
        let (acts, expire) = client(fire, 25, 1);
        let run =
            |faults| World::new(acts.clone(), 0, faults).rounding_down_to(rounds).run(end_of(expire, fire));
        for point in 0..run(vec![]).points {
            check(&run(vec![(point, Fault::Death)]), 0, &(fire, rounds, point));
        }
    }
}

/// iTCO resets at its second expiry, on some machines at its first, which comes after half the time.
#[test]
fn a_device_that_fires_at_its_first_expiry_or_later_keeps_the_promise_and_spares_a_host_that_is_well() {
    for fire in [10, 20, 30, 60, 300] {
        let (acts, expire) = client(fire, 25, 1);
        let faults: Vec<Fault> =
            std::iter::once(Fault::Death).chain(stalls(fire).into_iter().map(Fault::Stall)).collect();
        for quarters in 0..=4 {
            let run = |faults| {
                let world = World::new(acts.clone(), 0, faults).firing_between_expiries(quarters);
                world.run(end_of(expire, fire))
            };
            let world = run(vec![]);
            check(&world, 0, &(fire, quarters));
            assert!(world.fired_at.unwrap() >= i64::try_from(expire).unwrap() * 1000, "{fire} {quarters}");
            for point in 0..world.points {
                for &fault in &faults {
                    check(&run(vec![(point, fault)]), 0, &(fire, quarters, point, fault));
                }
            }
        }
        // Two thirds of the time to the first expiry are there to be late in.
        let half = i64::from(wanted_device_timeout(fire).unwrap() / 2) * 1000;
        let acts = || vec![(0, 2, Act::Connect), (0, 2, open(fire)), (0, 2, live(1, 100_000))];
        let run = |faults| World::new(acts(), 0, faults).firing_between_expiries(0).run(60_000);
        for point in 0..run(vec![]).points {
            let world = run(vec![(point, Fault::Stall(half * 3 / 5))]);
            assert_eq!(world.fired_at, None, "{fire} {point}");
        }
    }
}

#[test]
fn a_device_that_would_not_stop_keeps_the_promise_to_the_next_client() {
    let mut broken = 0;
    for fire in FIRE_TIMEOUTS {
        let (next, expire) = client(fire, 8, 1);
        let mut acts = vec![(0, 9, Act::Connect), (100, 9, open(fire)), (600, 9, Act::Close)];
        acts.extend(next);
        let run = |faults| World::new(acts.clone(), 0, faults).that_will_not_stop();
        for point in 0..run(vec![]).run(end_of(expire, fire)).points {
            let death = || run(vec![(point, Fault::Death)]);
            check(&death().run(end_of(expire, fire)), 0, &(fire, point));
            let world = death().without_taking_back().run(end_of(expire, fire));
            broken += usize::from(!world.promised.is_empty() && world.fired_at.is_none());
        }
    }
    // A `V` that stays in force would stop the device when the daemon dies.
    assert!(broken > 0);
}

#[test]
fn an_outage_that_ends_before_the_device_fires_leaves_no_trace() {
    for fire in FIRE_TIMEOUTS {
        let device = i64::from(wanted_device_timeout(fire).unwrap()) * 1000;
        let (mut acts, expire) = client(fire, 20, 0);
        let starves = World::new(acts.clone(), 0, vec![]).run(end_of(expire, fire)).fired_at.unwrap();
        // Renewed just before the device would have fired.
        let at = starves - device / 3;
        let next = u64::try_from(at / 1000).unwrap() + 1000;
        acts.push((at, 2, live(next - 1000, next)));
        let world = World::new(acts, 0, vec![]).run(at + 500_000);
        assert_eq!(world.fired_at, None, "{fire}");
    }
}

#[test]
fn a_daemon_that_is_merely_late_never_lets_the_device_fire() {
    for fire in FIRE_TIMEOUTS {
        let device = i64::from(wanted_device_timeout(fire).unwrap()) * 1000;
        let acts = vec![(0, 2, Act::Connect), (0, 2, open(fire)), (0, 2, live(1, 100_000))];
        let world = World::new(acts, device / 2, vec![]).run(600_000);
        assert_eq!(world.fired_at, None, "{fire}");
        assert!(world.pings > 10);
    }
}

/// Some client does something at some second, or a script has something to say.
fn acts() -> impl Strategy<Value = Vec<(i64, u32, Act)>> {
    let act = prop_oneof![
        4 => (1_u64..40).prop_map(|lease| live(0, lease)),
        1 => Just(live(0, 0)),
        1 => Just(Act::Close),
        1 => (0_u8..2, any::<bool>()).prop_map(|(slot, good)| Act::Script { slot, good }),
    ];
    prop::collection::vec((0_i64..60_000, 2_u32..5, act), 0..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Several clients and scripts in any order, one fault anywhere: what every one of them was promised is kept. Leases are relative
    /// to the time they are sent, never in the past.
    #[test]
    fn several_clients(mut script in acts(), fire in prop::sample::select(&FIRE_TIMEOUTS[..]), late in 0_i64..200,
                       point in 0_usize..400, fault in prop_oneof![Just(Fault::Death), (1_i64..40_000).prop_map(Fault::Stall)]) {
        script.sort_by_key(|&(at, ..)| at);
        let mut all: Vec<(i64, u32, Act)> = (2..5).map(|id| (0, id, Act::Connect)).collect();
        all.push((1, 9, Act::Connect));
        all.push((2, 9, open(fire)));
        let mut closed = Vec::new();
        for (at, id, act) in script {
            if closed.contains(&id) && !matches!(act, Act::Script { .. }) {
                continue;
            }
            let second = u64::try_from(at / 1000).unwrap();
            match act {
                Act::Close => {
                    closed.push(id);
                    all.push((at + 10, id, act));
                }
                Act::Send(message) if message.expire_time != 0 => {
                    all.push((at + 10, id, live(second, second + message.expire_time)));
                }
                Act::Send(_) | Act::Connect | Act::Script { .. } => all.push((at + 10, id, act)),
            }
        }
        let world = World::new(all, late, vec![(point, fault)]).run(400_000);
        check(&world, 0, &(fire, point, fault));
    }
}
