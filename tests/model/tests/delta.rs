//! Two machines that claim one host id, in discrete time, and a host that watches them: the production machines keep every property,
//! and the checker finds CE6 by itself where a host name alone allows a rejoin.

use sanlock_model::delta::{Budget, Property, Rejoin, Settings, Twist, Watch, World, search};

/// More than any run here has.
const STATES_MAX: usize = 8_000_000;

fn keeps_everything(what: &str, settings: Settings, sometimes: &[&str]) {
    let mut world = World::new(settings);
    let found = search(&mut world, STATES_MAX);
    if let Some((property, schedule)) = &found.violation {
        let text = world.narrate(schedule);
        panic!("{what}: {property:?} is broken after {} states:\n{text}", found.states);
    }
    println!("{what}: {} states, {} steps, complete, depth {}", found.states, found.steps, found.depth);
    println!("    {:?}", world.marks);
    for name in sometimes {
        assert!(world.marks.get(name) > 0, "{what}: never {name}");
    }
}

fn breaks(property: Property, settings: Settings) -> String {
    let mut world = World::new(Settings { properties: vec![property], ..settings });
    let found = search(&mut world, STATES_MAX);
    let Some((_, schedule)) = found.violation else { panic!("not found in {} states", found.states) };
    let text = world.narrate(&schedule);
    println!("{property:?} after {} states:\n{text}", found.states);
    text
}

/// Both may begin until 5 s, something may go wrong until 4.5 s, and 22 s are long enough for every take-over after that.
fn short(budget: Budget) -> Settings {
    Settings { starts: [2, 1], start_until: 10, faults_until: 9, budget, ..Settings::new(44) }
}

/// Two claimants alone, with a watcher that begins as soon as there is something to watch, and one of them with a watcher that
/// begins at any time.
fn every_cast(settings: Settings) -> [(&'static str, Settings); 3] {
    let one = Settings { starts: [settings.starts[0], 0], watcher: Watch::AnyTime, ..settings.clone() };
    let alone = Settings { watcher: Watch::Nobody, ..settings.clone() };
    [("2 claimants and a watcher", settings), ("2 claimants", alone), ("1 claimant and a watcher", one)]
}

#[test]
fn two_claimants_without_faults() {
    let settings = Settings { starts: [1, 1], start_until: 12, ..Settings::new(50) };
    let sometimes = ["joined", "refused_busy", "lost_race", "renewed", "resource_taken"];
    keeps_everything("2 claimants and a watcher, no faults", settings, &sometimes);
}

#[test]
fn an_operation_hangs() {
    for (cast, settings) in every_cast(short(Budget { hangs: 1, ..Budget::default() })) {
        let settings = Settings { starts: [1, settings.starts[1]], ..settings };
        let sometimes = ["renewed_late", "failed", "ended_by_force", "late_write_landed", "released_id"];
        keeps_everything(&format!("{cast}, 1 operation hangs"), settings, &sometimes);
    }
}

#[test]
fn a_daemon_dies_beside_its_process() {
    for (cast, settings) in every_cast(short(Budget { deaths: 1, ..Budget::default() })) {
        // With another claimant the daemon comes back; alone the watcher begins at any time.
        let alone = settings.watcher == Watch::AnyTime;
        let settings = if alone {
            Settings { starts: [1, 0], ..settings }
        } else {
            Settings { start_until: 7, ..settings }
        };
        let sometimes = ["died_with_process", "fired", "ended_by_force"];
        keeps_everything(&format!("{cast}, 1 daemon dies"), settings, &sometimes);
    }
}

#[test]
fn a_host_is_reset_and_comes_back() {
    for (cast, settings) in every_cast(short(Budget { resets: 1, ..Budget::default() })) {
        keeps_everything(&format!("{cast}, 1 reset"), settings, &["joined_fast", "renewed"]);
    }
}

#[test]
fn a_host_stands_still() {
    for (cast, settings) in every_cast(short(Budget { freezes: 1, ..Budget::default() })) {
        let settings = Settings { starts: [1, settings.starts[1]], ..settings };
        let sometimes = ["fired", "failed", "ended_by_force", "released_id"];
        keeps_everything(&format!("{cast}, 1 host stands still"), settings, &sometimes);
    }
}

/// It has no watchdog yet that would end it, so whatever it had read and written may be from an hour ago.
#[test]
fn a_host_stands_still_while_it_joins() {
    for (cast, settings) in every_cast(short(Budget { early_freezes: 1, ..Budget::default() })) {
        let settings = Settings { starts: [1, settings.starts[1]], ..settings };
        keeps_everything(
            &format!("{cast}, 1 joining host stands still"),
            settings,
            &["stood_still", "joined"],
        );
    }
}

#[test]
#[ignore = "long: three million states"]
fn a_host_stands_still_while_it_joins_and_joins_again() {
    for (cast, settings) in every_cast(short(Budget { early_freezes: 1, ..Budget::default() })) {
        let cast = format!("{cast}, 1 joining host stands still, two joins");
        keeps_everything(&cast, settings, &["stood_still", "joined"]);
    }
}

#[test]
fn a_lockspace_is_left() {
    for (cast, settings) in every_cast(short(Budget { leaves: 1, ..Budget::default() })) {
        keeps_everything(&format!("{cast}, 1 leaves"), settings, &["released_id", "resource_taken"]);
    }
}

/// Clocks that gain or lose half a second in 12 s, which is far more than A3 allows for.
#[test]
#[ignore = "long: two million states"]
fn a_clock_is_wrong_while_a_daemon_dies() {
    let settings = short(Budget { deaths: 1, drifts: 1, ..Budget::default() });
    let settings = Settings { starts: [1, 1], start_until: 4, watcher: Watch::AtOnce, ..settings };
    let sometimes = ["watcher_took_from_dead", "id_taken_from_dead", "fired"];
    keeps_everything("2 claimants and a watcher, 1 daemon dies, 1 clock drifts", settings, &sometimes);
}

/// A name alone is worth nothing: two machines of one name do not believe at the same time.
#[test]
fn two_machines_of_one_name() {
    let budget = Budget { deaths: 1, ..Budget::default() };
    let settings = Settings { same_name: true, start_until: 6, ..short(budget) };
    keeps_everything(
        "2 claimants of one name, 1 daemon dies",
        settings.clone(),
        &["died_with_process", "fired"],
    );
    let by_name = Settings { rejoin: Rejoin::ByName, budget: Budget::default(), ..settings };
    breaks(Property::OneBeliever, by_name);
}

/// CE6: the daemon dies, its process goes on; where the name is enough the restarted daemon has the next generation at once, and the
/// watcher takes the resource of the former one.
#[test]
fn ce6_a_rejoin_by_name_beside_a_living_process() {
    let settings = Settings { starts: [2, 0], ..short(Budget { deaths: 1, ..Budget::default() }) };
    let text = breaks(Property::OneOwner, Settings { rejoin: Rejoin::ByName, ..settings.clone() });
    assert!(text.contains("Death") && text.contains("generation 2"));
    keeps_everything("CE6, ours", settings, &["died_with_process", "fired"]);
}

/// A limit that is known: two machines that claim one id against all rules and have been up for the same time to the second. A late
/// write of the one that gave up brings back the very record that the watcher saw, and it counts on from there.
#[test]
fn known_limit_of_two_machines_with_one_id_and_one_uptime() {
    let budget = Budget { hangs: 1, ..Budget::default() };
    let settings = Settings { starts: [1, 1], same_uptime: true, ..short(budget) };
    breaks(Property::OneOwner, settings.clone());
    breaks(Property::OwnersAreSilent, settings);
}

/// Properties fail where something is bent.
#[test]
fn what_is_bent_is_found() {
    let budget = Budget { hangs: 1, ..Budget::default() };
    let settings = Settings { starts: [1, 1], ..short(budget) };
    breaks(Property::OneOwner, Settings { twist: Twist::NoWatchdog, ..settings.clone() });
    breaks(Property::OldUsersAreEnded, Settings { twist: Twist::NoRecovery, ..settings.clone() });
    // The join of the one that lost lands late.
    breaks(Property::BelieverNotices, Settings { twist: Twist::NoRenewals, ..settings });
    let settings = Settings { starts: [1, 1], ..short(Budget { leaves: 1, ..Budget::default() }) };
    breaks(Property::GenerationsRise, Settings { twist: Twist::OldGenerations, ..settings });
}
