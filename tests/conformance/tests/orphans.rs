//! Persistent leases and orphans, on either program (lease-algorithms.md 7.2, 7.3, 9.4; socket-protocol.md 7.7, 7.8, 7.31).

use std::time::Duration;

use sanlock_conformance::dead_owner::registered;
use sanlock_conformance::raw::{Connection, flag};
use sanlock_conformance::storage::LOCKSPACE;
use sanlock_conformance::{Holder, Program, Resource, Scene, Table, bounded};

/// For what happens in the background, on a loaded machine.
const SOON: Duration = Duration::from_secs(60);

/// The resource lines of STATUS without what precedes the offset: offset, mode or version, pid, list.
fn shown(scene: &Scene) -> Vec<String> {
    let status = scene.host(0).client(&["client", "status"]).success().stdout;
    let mut lines: Vec<String> = status
        .lines()
        .filter_map(|line| line.strip_prefix("r "))
        .map(|line| line.replace(scene.storage().path(), "P"))
        .collect();
    lines.sort();
    lines
}

fn wait_until_shown(scene: &Scene, expected: &[String]) {
    bounded::wait_until("the resources to be shown as expected", SOON, || shown(scene) == expected);
}

fn line(scene: &Scene, n: u64, version: &str, pid: u32, list: &str) -> String {
    format!("LS:R{n}:P:{}:{version} p {pid}{list}", scene.storage().offset(n))
}

/// Persistent leases of a process that has ended.
fn orphans(scene: &Scene, resources: &[Resource]) {
    let wanted: Vec<Resource> = resources.iter().cloned().map(Resource::persistent).collect();
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire(&wanted, 0, None), 0);
    drop(client);
    let count = resources.len();
    bounded::wait_until("the orphans", SOON, || {
        shown(scene).iter().filter(|line| line.ends_with(" ORPHAN")).count() == count
    });
}

fn release_orphans(client: &mut Connection, lockspace: &str, name: &str) -> i32 {
    let what = Resource::new(lockspace, name, "/none", 0);
    client.release(&[what], flag::RELEASE_ORPHAN, None)
}

#[test]
fn an_orphan_is_kept_shown_and_adopted_in_its_mode() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let (own, shared) = (scene.storage().resource(1), scene.storage().resource(2).shared());
    orphans(&scene, &[own.clone(), shared.clone()]);
    let me = std::process::id();
    let kept = [line(&scene, 1, "1", me, " ORPHAN"), line(&scene, 2, "SH", 0, " ORPHAN")];
    assert_eq!(shown(&scene), kept);
    assert_eq!(scene.owner(1), Some((1, 1)));

    let mut table = Table::default();
    let mut client = registered(scene.host(0));
    let either = scene.storage().resource(2);
    for (case, resource, flags, expected) in [
        ("no orphan asked for", &own, 0, -117),
        ("no shared orphan asked for", &shared, 0, -117),
        ("the other mode", &own.clone().shared(), flag::ACQUIRE_ORPHAN, -117),
        ("the other mode only", &either, flag::ACQUIRE_ORPHAN_ONLY, -117),
        ("adopted", &own, flag::ACQUIRE_ORPHAN, 0),
        ("adopted shared", &shared, flag::ACQUIRE_ORPHAN | flag::ACQUIRE_LVB, 0),
        ("not an orphan any more", &own, flag::ACQUIRE_ORPHAN, -17),
    ] {
        table.expect(case, client.acquire(std::slice::from_ref(resource), flags, None), expected);
    }
    let items = vec![
        format!("{}:1", scene.storage().resource_arg(1)),
        format!("{}:SH", scene.storage().resource_arg(2)),
    ];
    table.expect("with its version", client.inquire(None).items(), items);
    table.expect("no lease was taken anew", scene.lver(1), 1);
    drop(client);
    // Whoever adopts it has to ask for a persistent lease again.
    wait_until_shown(&scene, &[]);
    assert_eq!(scene.owner(1), None);
}

#[test]
fn a_release_or_a_conversion_is_as_ever() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let own = scene.storage().resource(1);
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire_one(&own.clone().persistent()), 0);
    assert_eq!(client.release_one(&own), 0);
    assert_eq!((shown(&scene), scene.owner(1)), (vec![], None));
    assert_eq!(client.acquire_one(&own.clone().persistent()), 0);
    assert_eq!(client.convert(&own.clone().shared()), 0);
    drop(client);
    wait_until_shown(&scene, &[line(&scene, 1, "SH", std::process::id(), " ORPHAN")]);
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire(&[own.shared()], flag::ACQUIRE_ORPHAN, None), 0);
}

#[test]
fn of_several_shared_holders_the_last_one_decides() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let shared = scene.storage().resource(1).shared();
    let mut keeps = registered(scene.host(0));
    let mut last = registered(scene.host(0));
    assert_eq!(keeps.acquire_one(&shared.clone().persistent()), 0);
    assert_eq!(last.acquire_one(&shared), 0);
    drop(keeps);
    wait_until_shown(&scene, &[line(&scene, 1, "SH", std::process::id(), "")]);
    drop(last);
    wait_until_shown(&scene, &[]);
}

#[test]
fn orphans_are_released_in_the_background_and_counted() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 3);
    let all: Vec<Resource> = (1..=3).map(|n| scene.storage().resource(n)).collect();
    orphans(&scene, &all);
    let mut table = Table::default();
    let what = Resource::new(LOCKSPACE, "", "/none", 0);
    let mut plain = scene.host(0).connect();
    table.expect("a target is needed", plain.release(&[what], flag::RELEASE_ORPHAN, None), -16);
    let mut client = registered(scene.host(0));
    table.expect("not there", release_orphans(&mut client, LOCKSPACE, "R9"), 0);
    table.expect("elsewhere", release_orphans(&mut client, "NOPE", ""), 0);
    table.expect("one", release_orphans(&mut client, LOCKSPACE, "R2"), 1);
    scene.wait_until_free(2, SOON);
    let me = std::process::id();
    wait_until_shown(&scene, &[line(&scene, 1, "1", me, " ORPHAN"), line(&scene, 3, "1", me, " ORPHAN")]);
    table.expect("the others", release_orphans(&mut client, LOCKSPACE, ""), 2);
    wait_until_shown(&scene, &[]);
    table.expect("free on disk", (scene.owner(1), scene.owner(3)), (None, None));
    table.expect("none is left", release_orphans(&mut client, LOCKSPACE, ""), 0);
}

#[test]
fn the_command_line_keeps_takes_and_releases_orphans() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let resource = scene.storage().resource_arg(1);
    let host = scene.host(0);
    let args = ["client", "command", "-r", &resource, "-P", "1", "-c", "/bin/true"];
    host.client(&args).success();
    bounded::wait_until("the orphan", SOON, || shown(&scene).iter().any(|line| line.ends_with("ORPHAN")));
    let refused = host.client(&["client", "command", "-r", &resource, "-c", "/bin/true"]);
    assert_eq!((refused.code, refused.stdout.lines().last()), (1, Some("acquire done -117")));
    let mut holder = Holder::start_with(host, &[&resource], &["-O", "1", "-P", "1"]);
    let pid = holder.pid().to_string();
    let none = host.client(&["client", "release", "-O", "1", "-s", LOCKSPACE, "-p", &pid]);
    assert_eq!((none.code, none.stdout.lines().last()), (0, Some("release done 0")));
    holder.kill();
    bounded::wait_until("the orphan", SOON, || shown(&scene).iter().any(|line| line.ends_with("ORPHAN")));
    let other = registered(host);
    let me = std::process::id().to_string();
    let released = host.client(&["client", "release", "-O", "1", "-s", LOCKSPACE, "-p", &me]);
    assert_eq!((released.code, released.stdout.lines().last()), (1, Some("release done 1")));
    wait_until_shown(&scene, &[]);
    drop(other);
}

/// The daemons take the first name of such a request, from a registered process; the original's command sends all in one, and is none.
#[test]
fn the_command_line_releases_each_orphan_that_is_named() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 3);
    let host = scene.host(0);
    orphans(&scene, &[1, 2, 3].map(|n| scene.storage().resource(n)));
    let [first, second, third] = [1, 2, 3].map(|n| scene.storage().resource_arg(n));
    let named = ["client", "release", "-O", "1", "-r", &first, "-r", &second];
    let last_line = |args: &[&str]| host.client(args).stdout.lines().last().map(str::to_owned);
    // All of a process are no orphans.
    let all = ["client", "release", "-a", "1", "-O", "1", "-s", LOCKSPACE];
    assert_eq!(last_line(&all).as_deref(), Some("release done -16"));
    assert_eq!(shown(&scene).len(), 3);
    if program == Program::Ours {
        // No process is registered but the command itself.
        assert_eq!(last_line(&named).as_deref(), Some("release done 2"));
        bounded::wait_until("those to be released", SOON, || shown(&scene).len() == 1);
        assert_eq!(
            last_line(&["client", "release", "-O", "1", "-r", &third]).as_deref(),
            Some("release done 1")
        );
        bounded::wait_until("the last one to be released", SOON, || shown(&scene).is_empty());
    } else {
        assert_eq!(last_line(&named).as_deref(), Some("release done -16"));
        let _other = registered(host);
        let me = std::process::id().to_string();
        assert_eq!(last_line(&[&named[..], &["-p", &me]].concat()).as_deref(), Some("release done 1"));
        bounded::wait_until("the first one to be released", SOON, || shown(&scene).len() == 2);
    }
}

/// Orphans end with their lockspace; but not where they count: then it waits until they are released.
#[test]
fn orphans_hold_a_lockspace_back_only_where_they_count() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let own = scene.storage().resource(1);
    orphans(&scene, std::slice::from_ref(&own));
    let space = scene.storage().lockspace(1);
    let mut asker = scene.host(0).connect();
    assert_eq!(asker.rem_lockspace(&space, flag::REM_UNUSED), -16, "an orphan is a use");
    assert_eq!(asker.rem_lockspace(&space, 0), 0);
    assert_eq!(shown(&scene), Vec::<String>::new());
    scene.host(0).join(scene.storage(), 1);
    orphans(&scene, std::slice::from_ref(&own));
    scene.host(0).client(&["client", "set_config", "-s", LOCKSPACE, "-O", "1"]).success();
    assert_eq!(asker.rem_lockspace(&space, flag::REM_ASYNC), 0);
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(asker.inq_lockspace(&space, 0), 0, "it still counts as joined");
    let mut client = registered(scene.host(0));
    assert_eq!(client.acquire(&[own], flag::ACQUIRE_ORPHAN, None), -28);
    assert_eq!(release_orphans(&mut client, LOCKSPACE, ""), 1);
    bounded::wait_until("the lockspace to be gone", SOON, || asker.inq_lockspace(&space, 0) == -2);
    assert_eq!(scene.owner(1).map(|(host, _)| host), Some(1), "the freed host id frees it");
}

/// A process with a persistent lease is killed because its lockspace ends. The original drops the lease although orphans count.
#[test]
fn a_killed_persistent_holder_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 1);
    let host = scene.host(0);
    let resource = scene.storage().resource_arg(1);
    let holder = Holder::start_with(host, &[&resource], &["-P", "1"]);
    host.client(&["client", "set_config", "-s", LOCKSPACE, "-O", "1"]).success();
    let space = scene.storage().lockspace(1);
    let mut asker = host.connect();
    assert_eq!(asker.rem_lockspace(&space, flag::REM_ASYNC), 0);
    if program == Program::Ours {
        bounded::wait_until("the orphan", SOON, || shown(&scene).iter().any(|line| line.ends_with("ORPHAN")));
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(asker.inq_lockspace(&space, 0), 0, "what the lease protects may still be used");
        assert_eq!(release_orphans(&mut registered(host), LOCKSPACE, ""), 1);
    }
    bounded::wait_until("the lockspace to be gone", SOON, || asker.inq_lockspace(&space, 0) == -2);
    drop(holder);
}

/// What the original does with ORPHAN_ONLY where there is no orphan, and with an orphan whose disk the request cannot open.
#[test]
fn what_the_original_does_to_orphans_is_a_difference() {
    let Some(program) = Program::under_test() else { return };
    let scene = Scene::one_host(program, 2);
    let ours = program == Program::Ours;
    let (first, second) = (scene.storage().resource(1), scene.storage().resource(2));
    let mut client = registered(scene.host(0));
    let only = client.acquire(std::slice::from_ref(&first), flag::ACQUIRE_ORPHAN_ONLY, None);
    assert_eq!(only, if ours { -2 } else { 0 }, "a new lease");
    let only =
        client.acquire(std::slice::from_ref(&second), flag::ACQUIRE_ORPHAN_ONLY | flag::ACQUIRE_LVB, None);
    assert_eq!(only, -2);
    orphans(&scene, std::slice::from_ref(&second));
    let elsewhere = Resource::new(LOCKSPACE, "R2", "/nonexistent", 0);
    let adopted = client.acquire(&[elsewhere], flag::ACQUIRE_ORPHAN, None);
    assert_eq!(adopted, if ours { 0 } else { -2 });
    assert_eq!(shown(&scene).len(), 1, "the original has lost it, and holds the new lease of the first case");
    assert_eq!(scene.owner(2), Some((1, 1)), "on disk it is owned in either case");
}
