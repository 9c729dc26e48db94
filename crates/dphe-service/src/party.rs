//! The names of parties, as in directory names, logs and task files.

use dphe::{PartyId, UserId};

/// Returns the name of a party, such as `user-3`.
pub fn party_name(party: PartyId) -> String {
    match party {
        PartyId::Aggregator => "aggregator".into(),
        PartyId::KeyGenerator => "key-generator".into(),
        PartyId::User(user) => format!("user-{user}"),
    }
}

/// Returns the party with this name.
pub fn party_of(name: &str) -> Option<PartyId> {
    match name {
        "aggregator" => Some(PartyId::Aggregator),
        "key-generator" => Some(PartyId::KeyGenerator),
        _ => {
            let user = name.strip_prefix("user-")?.parse().ok().and_then(UserId::new)?;
            // each party has one name: no leading zeros or signs
            (party_name(PartyId::User(user)) == name).then_some(PartyId::User(user))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn party_names_have_one_form() {
        let parties = [PartyId::Aggregator, PartyId::KeyGenerator, PartyId::User(UserId::new(12).unwrap())];
        for party in parties {
            assert_eq!(party_of(&party_name(party)), Some(party));
        }
        for wrong in ["user-0", "user-012", "user-+1", "user-", "User-1", "aggregator ", "user-4294967296"] {
            assert_eq!(party_of(wrong), None, "{wrong}");
        }
    }
}
