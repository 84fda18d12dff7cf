//! Every check can fail: hosts that are broken on purpose, and what is to be noticed.

use sanlock_sim::dice::Dice;
use sanlock_sim::sabotage::Sabotage;
use sanlock_sim::settings::Settings;
use sanlock_sim::world::World;

/// Seeds tried until the check fires.
const SEEDS: u64 = 60;

/// Runs worlds with this broken until a violation with this text is found.
#[track_caller]
fn noticed(sabotage: Sabotage, wanted: &'static str) {
    for seed in 1..=SEEDS {
        let settings = Settings::draw(&mut Dice::new(seed ^ 0x5e77), 0);
        let mut world = World::new(settings, seed, false).with(sabotage, wanted);
        if !world.run() {
            return;
        }
    }
    panic!("{sabotage:?} was not noticed as {wanted} in {SEEDS} runs");
}

macro_rules! noticed {
    ($($name:ident: $sabotage:ident, $wanted:literal;)*) => {
        $(
            #[test]
            fn $name() {
                noticed(Sabotage::$sabotage, $wanted);
            }
        )*
    };
}

noticed! {
    s1_released_and_used: KeepsUsing, "S1:";
    s1_a_watchdog_that_never_fires: NeverFires, "S1:";
    s2_leaders_that_nobody_chose: LeaderOfNobody, "S2:";
    s3_forgotten_values: BlocksForget, "S3:";
    s5_success_without_a_lease: FalseSuccess, "S5:";
    s5_another_version_than_chosen: OldGeneration, "S5:";
    s6_time_does_not_pass: AgesUnseen, "S6:";
    s7_an_expiry_too_late: ExpiryTooLate, "expires at";
    s7_no_expiry: ArmsNothing, "no watchdog armed";
    s7_disarmed_while_in_use: DisarmsEarly, "disarms lockspace";
    s8_a_stranger_on_our_host_id: CorruptUnseen, "S8:";
    s9_generations_that_fall: GenerationFalls, "S9:";
    s10_ballots_of_another_host: ForeignBallots, "S10:";
    s11_owners_taken_for_dead: OwnersDieYoung, "S11:";
    s13_released_while_in_use: KeepsUsing, "S13:";
    s14_written_without_a_host_id: WritesWhenGone, "S14:";
    s15_written_elsewhere: WrongSector, "S15:";
    r1_values_erased_by_a_release: ReleasesErase, "R1:";
    r2_blocks_that_go_back: BlocksGoBack, "R2:";
    r3_forgotten_writes: WritesForgotten, "R3:";
    w1_a_reset_without_a_reason: FiresAtWill, "W1:";
    w2_an_idle_lockspace: NeverDisarms, "W2:";
    w3_a_signal_for_a_bystander: KillsBystanders, "is signalled";
    w4_a_watchdog_that_never_fires: NeverFires, "W4:";
    l_releases_without_an_end: ReleasesNeverEnd, "L1/L3/L4:";
}
