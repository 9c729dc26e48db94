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

/// Returns a list of users for people, such as `1, 2, 5`. A long list ends with how many more there are.
pub fn list_of_users(users: &[u32]) -> String {
    const SHOWN: usize = 50;
    let shown: Vec<String> = users.iter().take(SHOWN).map(u32::to_string).collect();
    match users.len().checked_sub(SHOWN) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
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
    fn long_lists_of_users_end_with_a_count() {
        assert_eq!(list_of_users(&[]), "");
        assert_eq!(list_of_users(&[2, 7]), "2, 7");
        let many: Vec<u32> = (1..=53).collect();
        assert!(list_of_users(&many).ends_with("49, 50 and 3 more"));
    }

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
