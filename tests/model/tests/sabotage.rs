//! Every property can fail: something is bent on purpose, the machines being ours, and the checker finds it. The properties not
//! here (`HostIdBeforeWrite`, `BlockRemembers`, `EverythingEnds`, `Progress`) fail on reference peers.

use sanlock_model::expect::found_only_with;
use sanlock_model::{Budget, Kind, Property, Settings, Twist};

fn breaks(twist: Twist, property: Property) {
    let budget = Budget { waits: 1, ..Budget::default() };
    found_only_with(twist, property, Settings { budget, ..Settings::new(Kind::Ours, &[2, 2]) });
}

#[test]
fn two_owners_if_the_living_look_dead() {
    breaks(Twist::LivingLookDead, Property::OneOwner);
}

#[test]
fn two_owners_of_a_version_if_blocks_vanish() {
    breaks(Twist::BlocksVanish, Property::OneOwner);
    breaks(Twist::BlocksVanish, Property::OneOwnerPerVersion);
    breaks(Twist::BlocksVanish, Property::BlocksKeepOwner);
}

#[test]
fn a_grant_that_no_leader_names_if_leaders_vanish() {
    breaks(Twist::LeadersVanish, Property::LeaderNamesOwner);
}

#[test]
fn a_version_granted_twice_if_writes_vanish() {
    breaks(Twist::WritesVanish, Property::VersionsRise);
}

#[test]
fn a_release_is_refused_if_the_leader_it_is_for_vanishes() {
    breaks(Twist::LaterLeadersVanish, Property::NothingForeign);
}

#[test]
fn a_flag_beside_a_holder_if_the_process_keeps_the_lease_until_the_release_is_done() {
    breaks(Twist::ReleasedTooEarly, Property::FlagAfterLettingGo);
}
