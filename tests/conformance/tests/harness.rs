//! The harness itself: a proof that never fails proves nothing.

use std::time::Duration;

use sanlock_conformance::contention::start_contender;
use sanlock_conformance::mixed::proof::{Mode, Proof};
use sanlock_conformance::mixed::site::{Class, SPOTS};
use sanlock_conformance::storage::scratch_dir;
use sanlock_conformance::{Program, Scene, bounded, mixed};

/// Two hosts that share no storage are both granted "the" lease; their contenders must notice.
#[test]
fn contenders_notice_two_owners() {
    let Some(program) = Program::under_test() else { return };
    let scenes = [Scene::one_host(program, 1), Scene::one_host(program, 1)];
    let proof_dir = scratch_dir("proof");
    let mut contenders: Vec<_> = scenes
        .iter()
        .enumerate()
        .map(|(index, scene)| {
            start_contender(scene.host(0), scene.storage(), proof_dir.path(), &format!("contender{index}"), 5)
        })
        .collect();
    let outputs: Vec<_> =
        contenders.iter_mut().map(|contender| contender.finish(Duration::from_secs(30))).collect();
    assert!(
        outputs.iter().any(|output| output.code != 0 && output.stderr.contains("DOUBLE OWNER")),
        "nobody noticed: {} {}",
        outputs[0],
        outputs[1]
    );
}

/// What the clients of the mixed run compare must be able to differ.
#[test]
fn clients_of_the_mixed_run_notice_what_is_wrong() {
    let Some(program) = Program::under_test() else { return };
    let spot = |class| SPOTS.iter().position(|spot| spot.class == class).expect("there is one of each");
    let [shared, valued, kept] = [Class::Shared, Class::Valued, Class::Kept].map(spot);
    type Spoil = Box<dyn FnOnce(&Proof) + Send>;
    let mut parts: Vec<(String, Box<dyn FnOnce() + Send>)> = Vec::new();
    let mut part = |expected: &'static str, spoil: Spoil| {
        let case: Box<dyn FnOnce() + Send> = Box::new(move || {
            let complaint = mixed::complaint(&[program; 4], |proof| spoil(proof));
            assert!(complaint.contains(expected), "not {expected}: {complaint}");
        });
        parts.push((expected.to_owned(), case));
    };
    part("OVERLAP", Box::new(move |proof| proof.hold(shared, Mode::Exclusive).expect("nobody has it")));
    part("DOUBLE OWNER", Box::new(move |proof| proof.ledger(shared, |entry| entry.lver = 1000)));
    part("ORPHAN LOST", Box::new(move |proof| proof.ledger(kept, |entry| entry.keeper = 3)));
    part("VALUE LOST", Box::new(move |proof| proof.ledger(valued, |entry| entry.value = 5)));
    bounded::side_by_side(parts);
}
