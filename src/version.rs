//! Versions that the command reports.

/// The release whose commands, protocol and disk format this program stands in for.
pub(crate) const COMPATIBLE: Version = Version { major: 3, minor: 8, patch: 5 };

/// A release number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    major: u8,
    minor: u8,
    patch: u8,
}

impl Version {
    /// From the number in a VERSION reply: major, minor and patch in the three high bytes.
    pub(crate) fn from_number(number: u32) -> Self {
        let [major, minor, patch, _] = number.to_be_bytes();
        Self { major, minor, patch }
    }

    /// The inverse.
    pub(crate) fn number(self) -> u32 {
        u32::from_be_bytes([self.major, self.minor, self.patch, 0])
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(COMPATIBLE.number(), 0x0308_0500);
        assert_eq!(Version::from_number(0x0501_0100).to_string(), "5.1.1");
        assert_eq!(Version::from_number(COMPATIBLE.number()), COMPATIBLE);
    }
}
