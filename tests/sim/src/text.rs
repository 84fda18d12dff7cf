//! Settings as text: what differs from [`Settings::quiet`], as `ours=3,stormy_secs=120,faults=leave+crash`. So a run fits into one
//! command, and whatever shrinks a run knows what there is to make smaller.

use crate::fault::Faults;
use crate::settings::Settings;
use sanlock_lease::geometry::Geometry;
use sanlock_lease::timing::{IoTimeout, WatchdogFire};
use std::fmt::{self, Display};
use std::str::FromStr;

/// A setting.
trait Setting: Sized + PartialEq + Display {
    fn read(text: &str) -> Result<Self, String>;
    /// Something between this and a quieter one: other than both, if there is anything.
    fn halfway(&self, quiet: &Self) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Setting for $number {
            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|e: std::num::ParseIntError| e.to_string())
            }

            fn halfway(&self, quiet: &Self) -> Option<Self> {
                let half = self.midpoint(*quiet);
                (half != *self && half != *quiet).then_some(half)
            }
        }
    )*};
}

numbers! { u64 u32 u8 }

impl Setting for bool {
    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|e: std::str::ParseBoolError| e.to_string())
    }

    fn halfway(&self, _: &Self) -> Option<Self> {
        None
    }
}

/// A type that holds seconds.
macro_rules! seconds {
    ($($of:ident)*) => {$(
        impl Setting for Seconds<$of> {
            fn read(text: &str) -> Result<Self, String> {
                let secs = u32::read(text)?;
                $of::new(secs).map(Self).map_err(|_| format!("{secs} is out of range"))
            }

            fn halfway(&self, _: &Self) -> Option<Self> {
                None
            }
        }

        impl Display for Seconds<$of> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.secs().fmt(f)
            }
        }
    )*};
}

#[derive(PartialEq)]
struct Seconds<T>(T);

seconds! { IoTimeout WatchdogFire }

impl Setting for Faults {
    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn halfway(&self, _: &Self) -> Option<Self> {
        None
    }
}

/// Sizes, as `4096/8M`.
#[derive(PartialEq)]
struct Sizes(Geometry);

impl Setting for Sizes {
    fn read(text: &str) -> Result<Self, String> {
        let found = Geometry::ALL.into_iter().find(|sizes| format!("{sizes:?}") == text);
        found.map(Self).ok_or_else(|| format!("no sizes: {text:?}"))
    }

    fn halfway(&self, _: &Self) -> Option<Self> {
        None
    }
}

impl Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// How a field is read and written: as it is, or by way of another type.
trait Field: Copy {
    type As: Setting;
    fn wrap(self) -> Self::As;
    fn unwrap(wrapped: Self::As) -> Self;
}

macro_rules! plain {
    ($($field:ident)*) => {$(
        impl Field for $field {
            type As = Self;
            fn wrap(self) -> Self {
                self
            }
            fn unwrap(wrapped: Self) -> Self {
                wrapped
            }
        }
    )*};
}

macro_rules! wrapped {
    ($($field:ident)*) => {$(
        impl Field for $field {
            type As = Seconds<Self>;
            fn wrap(self) -> Seconds<Self> {
                Seconds(self)
            }
            fn unwrap(wrapped: Seconds<Self>) -> Self {
                wrapped.0
            }
        }
    )*};
}

plain! { u64 u32 u8 bool Faults }
wrapped! { IoTimeout WatchdogFire }

impl Field for Geometry {
    type As = Sizes;
    fn wrap(self) -> Sizes {
        Sizes(self)
    }
    fn unwrap(wrapped: Sizes) -> Self {
        wrapped.0
    }
}

fn read<F: Field>(text: &str) -> Result<F, String> {
    F::As::read(text).map(F::unwrap)
}

/// Tries that are quieter in one field: as quiet as can be, and halfway.
fn quieter<F: Field>(now: F, quiet: F) -> impl Iterator<Item = F> {
    let (now, still) = (now.wrap(), quiet.wrap());
    let half = if now == still { None } else { now.halfway(&still) };
    let all = (now != still).then_some(still);
    all.into_iter().chain(half).map(F::unwrap)
}

/// All fields of the settings: one that is missing here does not compile.
macro_rules! fields {
    ($($field:ident)*) => {
        impl Display for Settings {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let quiet = Self::quiet();
                let Self { $($field),* } = *self;
                let mut comma = "";
                $(
                    if $field != quiet.$field {
                        write!(f, "{comma}{}={}", stringify!($field), $field.wrap())?;
                        comma = ",";
                    }
                )*
                if comma.is_empty() { f.write_str("quiet") } else { Ok(()) }
            }
        }

        impl FromStr for Settings {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let mut settings = Self::quiet();
                for part in text.split(',').filter(|part| *part != "quiet") {
                    let (name, value) = part.split_once('=').ok_or_else(|| format!("no value: {part:?}"))?;
                    match name {
                        $(
                            stringify!($field) => {
                                settings.$field = read(value).map_err(|e| format!("{part:?}: {e}"))?;
                            }
                        )*
                        _ => return Err(format!("no setting: {name:?}")),
                    }
                }
                settings.check()?;
                Ok(settings)
            }
        }

        impl Settings {
            /// The same with one field quieter, in every way there is.
            #[must_use]
            pub fn quieter(&self) -> Vec<Self> {
                let quiet = Self::quiet();
                let mut all = Vec::new();
                $(
                    all.extend(quieter(self.$field, quiet.$field).map(|$field| Self { $field, ..*self }));
                )*
                all.retain(|settings| settings.check().is_ok());
                all
            }
        }
    };
}

fields! {
    ours references disks legs disk_faults_per_mille dead_disk resources num_hosts processes other_timeouts_per_mille lag_ms drift_ppm device_long_ppm io_timeout fire
    grace_secs timeouts_per_mille errors_per_mille slow_per_mille faults chaos_mean_secs hold_ms pause_ms shared_per_mille
    persistent_per_mille values_per_mille renames_per_mille demands_per_mille misconfigured_per_mille renamed_per_mille stormy_secs
    request_mean_secs event_mean_secs geometry join_timeouts_per_mille orphans_count_per_mille
    format_mean_secs format_cuts_per_mille wrong_legs_per_mille old_wdmds_per_mille leader_trouble_per_mille
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn settings_are_read_as_they_are_written() {
        let mut dice = Dice::new(1);
        for n in 0..500 {
            let settings =
                if n % 2 == 0 { Settings::draw(&mut dice, n % 3) } else { Settings::long(&mut dice, n % 3) };
            assert_eq!(settings.to_string().parse(), Ok(settings));
        }
        assert_eq!(Settings::quiet().to_string(), "quiet");
        assert_eq!("quiet".parse(), Ok(Settings::quiet()));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for wrong in [
            "ours",
            "ours=",
            "ours=x",
            "ours=0",
            "ours=2001",
            "disks=9",
            "resources=0",
            "mice=3",
            "faults=rain",
        ] {
            assert!(wrong.parse::<Settings>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn quieter_ends_where_all_is_quiet() {
        let mut settings = Settings::draw(&mut Dice::new(2), 1);
        let mut steps = 0;
        while let Some(next) = settings.quieter().first() {
            settings = *next;
            steps += 1;
        }
        assert_eq!((settings, steps < 100), (Settings::quiet(), true));
    }
}
