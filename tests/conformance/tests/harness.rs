//! The harness itself: a proof that never fails proves nothing.

use std::time::Duration;

use sanlock_conformance::contention::start_contender;
use sanlock_conformance::storage::scratch_dir;
use sanlock_conformance::{Program, Scene};

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
