//! Stock sanlk-reset and sanlk-resetd: one host asks another one, through the lockspace, to have itself reset by its
//! watchdog (command-line.md 15). The watchdog is a pretended one.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sanlock_conformance::program::missing;
use sanlock_conformance::scene::acquire_soon;
use sanlock_conformance::watchdog::now;
use sanlock_conformance::wdmd::mount_namespaces;
use sanlock_conformance::{Holder, Machine, Program, Running, Scene, bounded};

const ASKING: &str = "/usr/sbin/sanlk-reset";
const ASKED: &str = "/usr/sbin/sanlk-resetd";

/// An event travels with the next renewal, its answer with the one after.
const SOON: Duration = Duration::from_secs(60);
/// Fire timeout of wdmd.
const FIRE: Duration = Duration::from_secs(60);
/// A host without renewals is dead after 8 × io timeout + fire timeout; a busy machine may take longer to say so.
const DEAD_LIMIT: Duration = Duration::from_secs(68 + 60);
/// wdmd tests its clients every 10 s: without pings for longer it has given up.
const SILENT: Duration = Duration::from_secs(15);

fn under_test() -> Option<Program> {
    let program = Program::wdmd_under_test()?;
    let installed = [ASKING, ASKED].iter().all(|path| Path::new(path).exists() || missing(path));
    (installed && mount_namespaces()).then_some(program)
}

/// `sanlk-reset` as a command on host `index` of the scene.
fn asking(scene: &Scene, index: usize, args: &[&str]) -> Command {
    let mut command = bounded::dying_with_us(Path::new(ASKING));
    command.args(args).env("SANLOCK_RUN_DIR", scene.host(index).run_dir());
    command
}

/// Asks host 1 until it has answered. A request counts four renewals of the other host and gives up, which on a busy machine
/// may be before the event has been read and the answer been written.
fn answered_request(scene: &Scene) -> Running {
    for _ in 0..5 {
        let mut reset = Running::start(asking(scene, 1, &["reset", "LS:1"]));
        bounded::wait_until("an answer of the other host, or none", SOON, || {
            reset.ended() || reset.text().1.contains("host resetting in ls LS:1")
        });
        if !reset.ended() {
            return reset;
        }
        let given_up = reset.finish(SOON);
        assert!(given_up.stderr.contains("reset failed: no replies"), "{given_up}");
    }
    panic!("the other host does not answer");
}

#[test]
fn a_host_that_is_asked_to_is_reset_and_its_leases_go_on() {
    let Some(program) = under_test() else { return };
    let machine = Machine::new(program);
    let mut wdmd = machine.start(&[]);
    let mut scene = Scene::two_hosts(program, 1);
    scene.wait_until_all_see_all();
    let holder = Holder::start(scene.host(0), &[&scene.storage().resource_arg(1)]);

    let mut command = machine.plain_command_of(Path::new(ASKED), &["-D"]);
    command.env("SANLOCK_RUN_DIR", scene.host(0).run_dir());
    let mut resetd = Running::start(command);
    bounded::wait_until("sanlk-resetd to be a client of wdmd", SOON, || {
        assert!(!resetd.ended(), "sanlk-resetd ended: {:?}", resetd.text());
        wdmd.slots("sanlk-resetd").len() == 1
    });
    // It watches no lockspace before it is told to.
    let mut command = machine.plain_command_of(Path::new(ASKING), &["reg", "LS"]);
    command.env("SANLOCK_RUN_DIR", scene.host(0).run_dir());
    let told = bounded::run(command, SOON).success();
    assert!(told.stdout.contains("Updated reg LS"), "{told}");

    let mut reset = answered_request(&scene);
    let answered = now();
    // In truth the reset ends these; their last renewal now saves waiting for it.
    drop(holder);
    scene.host_mut(0).kill();
    let watchdog = || machine.devices().reckoning("watchdog0", None);
    bounded::wait_until("the pings to end", SOON, || now() > watchdog().last_ping() + SILENT);
    let fires = watchdog().fires.unwrap_or_else(|| panic!("the device does not run: {}", wdmd.dump()));
    let late = program.differs(10, 0, "the original pings once more, at its next test");
    let latest = answered + FIRE + Duration::from_secs(late);
    assert!(fires <= latest, "fires at {fires:?}, answered at {answered:?}");
    assert!(!reset.ended(), "not done before the host is dead: {:?}", reset.text());

    resetd.kill();
    wdmd.crash();
    let end = reset.finish(DEAD_LIMIT).success();
    assert!(end.stderr.contains("reset done by host_status in ls LS:1"), "{end}");
    let (_lease, took) = acquire_soon(scene.host(1), scene.storage(), 1, SOON);
    assert!(took < Duration::from_secs(20), "the host is dead already, and it took {took:?}");
}

#[test]
fn a_host_that_does_not_listen_is_given_up() {
    let Some(program) = under_test() else { return };
    let scene = Scene::two_hosts(program, 0);
    scene.wait_until_all_see_all();

    let given_up = bounded::run(asking(&scene, 1, &["reset", "LS:1"]), SOON);
    assert_eq!(given_up.code, 1, "{given_up}");
    assert!(given_up.stderr.contains("asked host to reset in ls LS:1"), "{given_up}");
    assert!(given_up.stderr.contains("reset failed"), "{given_up}");
    // Nothing was done to it, and the event is no obstacle.
    assert_eq!(scene.host(0).connect().inq_lockspace(&scene.storage().lockspace(1), 0), 0);
    scene.host(0).leave(scene.storage(), 1);

    let free = bounded::run(asking(&scene, 1, &["reset", "LS:7"]), SOON);
    assert_eq!(free.code, 1, "a host_id that nobody has: {free}");
    let unknown = bounded::run(asking(&scene, 1, &["reset", "XX:1"]), SOON);
    assert_eq!(unknown.code, 1, "a lockspace that is not joined: {unknown}");
}
