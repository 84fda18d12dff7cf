//! What our command says while it waits: on a terminal, with `--progress`, and not at all.

use std::time::Duration;

use sanlock_conformance::frozen::FreezableDir;
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Holder, Host, Program, Running, Scene, Terminal, bounded};

/// Longer than the first sign of life takes, with room for a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn stderr_has(running: &Running, words: &str) -> String {
    bounded::wait_until(words, SOON, || running.text().1.contains(words));
    running.text().1
}

#[test]
fn a_join_counts_down_on_the_terminal_and_leaves_nothing_there() {
    let scene = Scene::not_joined(Program::Ours, 0);
    let host = scene.host(0);
    let spec = scene.storage().lockspace_arg(1);
    // Long enough to be seen: the join takes two io timeouts.
    let _ = host.client(&["direct", "init", "-s", &spec, "-o", "4"]).success();
    let Some(terminal) = Terminal::open(host, &[]) else { return };
    terminal.line(&format!("clear; sanlock add_lockspace -s {spec} -o 4"));
    let screen = terminal.wait_for(" s left: making sure that host id 1 is ");
    let before = screen.lines().position(|line| line.contains(" s left: "));
    let second = |screen: &str| -> Option<u64> {
        let line = screen.lines().find(|line| line.contains(" s left: "))?;
        line.split(" s left").next()?.split(' ').next_back()?.parse().ok()
    };
    let first = second(&screen);
    let screen =
        terminal.wait_until("fewer seconds", |screen| second(screen).is_some_and(|s| Some(s) < first));
    assert_eq!(
        screen.lines().position(|line| line.contains(" s left: ")),
        before,
        "on the same line:\n{screen}"
    );
    let screen = terminal.wait_for("add_lockspace_timeout done 0");
    assert!(!screen.contains("left:"), "{screen}");
}

#[test]
fn a_join_over_a_host_id_that_was_not_left_counts_down() {
    let mut scene = Scene::one_host(Program::Ours, 0);
    scene.host_mut(0).kill();
    let spec = scene.storage().lockspace_arg(1);
    let host = Host::start(Program::Ours, "host2");
    let asked = host.client_in_background(&["add_lockspace", "-s", &spec, "-o", "1", "--progress"]);
    let stderr = stderr_has(&asked, "host id 1 was not left by \"host1\": waiting until that must be dead");
    // 8 x 1 + 60 + 1 + 2 x 1 seconds, of which some have passed.
    let left =
        stderr.split(" s left").next().and_then(|text| text.split(' ').next_back()?.parse::<u64>().ok());
    assert!(left.is_some_and(|left| (40..71).contains(&left)), "{stderr}");
    assert!(!stderr.contains(['\r', '\x1b']), "plain lines: {stderr}");
}

#[test]
fn scripts_hear_nothing() {
    let scene = Scene::not_joined(Program::Ours, 0);
    let host = scene.host(0);
    let spec = scene.storage().lockspace_arg(1);
    let _ = host.client(&["direct", "init", "-s", &spec, "-o", "2"]).success();
    let output = host.client(&["add_lockspace", "-s", &spec, "-o", "2"]).success();
    assert!(output.took > Duration::from_secs(2), "it waited: {output}");
    assert_eq!(output.stderr, "");
}

/// What an acquire that waits until the owner must be dead says, which contains `title`.
fn waiting_acquire_says(host: &Host, resource: &str, title: &str) -> String {
    let ask = || host.client_in_background(&["command", "-r", resource, "--progress", "-c", "/bin/true"]);
    let mut asked = ask();
    bounded::poll_for(title, SOON, || {
        let said = asked.text().1;
        // While the owner is alive it is refused at once, and just after its end it still counts as alive.
        if !said.contains(title) && asked.ended() {
            asked = ask();
        }
        Some(said).filter(|said| said.contains(title))
    })
}

#[test]
fn a_take_over_names_the_owner_and_the_seconds() {
    let mut scene = Scene::two_hosts(Program::Ours, 1);
    scene.wait_until_all_see_all();
    let resource = scene.storage().resource_arg(1);
    let holder = Holder::start(scene.host(1), &[&resource]);
    scene.host_mut(1).kill();
    drop(holder);
    let title = format!("{LOCKSPACE}:R1 is held by host 2 \"host2\", silent for ");
    let stderr = waiting_acquire_says(scene.host(0), &resource, &title);
    assert!(stderr.contains("sanlock: command: ") && stderr.contains(" s left: "), "{stderr}");
}

#[test]
fn a_format_says_which_write_it_waits_for() {
    let Some(mut frozen) = FreezableDir::new() else { return };
    let path = frozen.path().join("leases");
    sanlock_conformance::storage::sparse_file(&path, 4 << 20);
    let spec = format!("{LOCKSPACE}:0:{}:0", path.display());
    let host = Host::start(Program::Ours, "host1");
    frozen.freeze();
    let mut running = host.client_in_background(&["direct", "init", "-s", &spec, "--progress"]);
    let stderr = stderr_has(&running, "write 1 of 3 at ");
    assert!(stderr.contains("sanlock: init: ") && stderr.contains(" s left: at most"), "{stderr}");
    frozen.thaw();
    assert_eq!(running.finish(SOON).success().stdout, "init done 0\n");
}
