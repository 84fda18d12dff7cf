//! Clients that come, renew, lapse, recover and leave at random, and daemons killed at awkward moments: the
//! pings keep to the rule, and the device to the promise.

use std::time::{Duration, Instant};

use sanlock_conformance::watchdog::{now, now_seconds};
use sanlock_conformance::wdmd::SOON;
use sanlock_conformance::wdmd_client::{Client, Message};
use sanlock_conformance::{Machine, Program, bounded};

use crate::{SLACK, last_ping_allowed};

/// Length of the random part.
const CHAOS: Duration = Duration::from_secs(12);

/// A small generator; the seed makes a run repeatable as far as the operations go.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % sides
    }
}

/// An expiry that was surely in force from the one moment to the other.
struct InForce {
    expiry: u64,
    from: Duration,
    until: Duration,
}

/// A client and the expiry it gave last, with the moment at which the daemon had surely read it.
struct Actor {
    client: Client,
    expiry: Option<(u64, Duration)>,
}

impl Actor {
    fn give(&mut self, expiry: u64, ledger: &mut Vec<InForce>) {
        let before = now();
        self.client.apply(&[Message::test_live(now_seconds(), expiry)]);
        self.forget(before, ledger);
        if expiry != 0 {
            self.expiry = Some((expiry, now()));
        }
    }

    fn forget(&mut self, until: Duration, ledger: &mut Vec<InForce>) {
        if let Some((expiry, from)) = self.expiry.take() {
            ledger.push(InForce { expiry, from, until });
        }
    }
}

/// Plays with eight clients on a machine of its own and judges every ping.
fn play(program: Program, fire: u32, device: u64, seed: u64) {
    let machine = Machine::new(program);
    let wdmd = machine.start(&[]);
    let (_anchor, timing) = wdmd.armed_with(fire, device);
    let mut dice = Dice(seed);
    let mut ledger = Vec::new();
    let mut actors: Vec<Actor> = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < CHAOS {
        let choice = dice.roll(10);
        let number = usize::try_from(dice.roll(8)).unwrap_or(0);
        match actors.get_mut(number) {
            None => actors.push(Actor { client: wdmd.connect(), expiry: None }),
            // Mostly in time, at times so short that it lapses before it is given again.
            Some(actor) if choice < 6 => {
                let expiry = now_seconds() + 1 + dice.roll(2 * timing.interval + 4);
                actor.give(expiry, &mut ledger);
            }
            Some(actor) if choice < 8 => actor.give(0, &mut ledger),
            Some(actor) if choice < 9 => {
                actor.give(0, &mut ledger);
                drop(actors.swap_remove(number));
            }
            Some(_) => std::thread::sleep(Duration::from_millis(300)),
        }
        std::thread::sleep(Duration::from_millis(dice.roll(200)));
    }
    let end = now();
    for actor in &mut actors {
        actor.forget(end, &mut ledger);
    }
    let events = machine.devices().events();
    // The unclean close of the original is a ping that its rule allows until the expiry.
    let pings =
        events.iter().filter(|event| event.ok() && matches!(event.call.as_str(), "keepalive" | "close"));
    let next_test = Duration::from_secs(timing.interval) + SLACK;
    let mut judged = 0;
    for ping in pings {
        for rule in ledger.iter().filter(|rule| rule.from < ping.at && ping.at < rule.until) {
            judged += 1;
            let allowed = Duration::from_secs(last_ping_allowed(program, rule.expiry, timing)) + SLACK;
            // An expiry sooner than the next test of the original is seen only then.
            let allowed =
                program.differs(allowed.max(rule.from + next_test), allowed, "no tests, but deadlines");
            assert!(
                ping.at <= allowed,
                "seed {seed}: {ping:?}, though a client had expiry {} from {:?} to {:?}",
                rule.expiry,
                rule.from,
                rule.until
            );
        }
    }
    assert!(judged > 0, "seed {seed}: nothing was judged");
    assert!(!ledger.is_empty());
}

#[test]
fn pings_keep_to_the_rule_whatever_clients_do() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let mut parts: Vec<(String, Box<dyn FnOnce() + Send>)> = Vec::new();
    for (seed, (fire, device)) in (1..).zip([(10, 5), (10, 5), (4, 2), (20, 10), (30, 10)]) {
        let part = move || play(program, fire, device, 0x9e37_79b9_7f4a_7c15 ^ (seed << 20));
        parts.push((format!("fire timeout {fire}, seed {seed}"), Box::new(part)));
    }
    bounded::side_by_side(parts);
}

/// One client is lost; then the daemon is killed `after` (or before, if negative) its expiry.
fn killed(program: Program, after: i64) {
    let machine = Machine::new(program);
    let mut wdmd = machine.start(&[]);
    let (mut client, timing) = wdmd.armed_with(10, 5);
    let expiry = now_seconds() + program.differs(timing.interval + 2, 6, "a good test comes first");
    client.apply(&[Message::test_live(now_seconds(), expiry)]);
    let at = Duration::from_secs(expiry.saturating_add_signed(after));
    bounded::wait_until("the moment", SOON, || now() >= at);
    wdmd.crash();
    let reckoning = machine.devices().reckoning("watchdog0", wdmd.died());
    let fires = reckoning.fires.expect("a running device");
    let promise = Duration::from_secs(expiry + timing.fire);
    assert!(fires <= promise, "killed at E {after:+}: fires at {fires:?}, promised {promise:?}");
    assert!(machine.marker().exists());
    assert_ne!(machine.start_unready(&[]).finish().code, 0, "nobody rescues this host");
}

#[test]
fn a_daemon_killed_at_any_moment_leaves_a_device_that_fires_in_time() {
    let Some(program) = Program::wdmd_under_test() else { return };
    let mut parts: Vec<(String, Box<dyn FnOnce() + Send>)> = Vec::new();
    for after in [-5, -3, -1, 0, 1, 2, 3] {
        parts.push((format!("E {after:+}"), Box::new(move || killed(program, after))));
    }
    bounded::side_by_side(parts);
}
