//! The macros that turn the table of messages into types and codecs.

/// Declares the messages: number and name on the wire, type, sender, longest body if there may be one, and fields in
/// the order in which they are written. A field whose bounds depend on the task names the function that reads it.
macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $number:literal $text:literal $name:ident from $role:ident $(body $body:expr)? => {
            $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $read:path)?,)+
        }
    )+) => {
        named_enum! {
            /// The kind of a message.
            pub enum Kind {
                $($(#[$doc])* $name = $text,)+
            }
        }

        impl Kind {
            /// Returns the number of the kind in headers.
            pub fn number(self) -> u8 {
                match self { $(Self::$name => $number,)+ }
            }

            /// Returns the kind with this number.
            pub fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$name),)+ _ => None }
            }

            /// Returns the media type of the kind in HTTP.
            pub fn media_type(self) -> &'static str {
                match self { $(Self::$name => concat!("application/vnd.dphe.v2.", $text),)+ }
            }

            /// Returns the domain of its hash.
            pub(crate) fn domain(self) -> &'static str {
                match self { $(Self::$name => concat!("dphe/v2/", $text),)+ }
            }

            /// Returns whether a party may send messages of this kind.
            pub fn may_be_sent_by(self, party: PartyId) -> bool {
                match self { $(Self::$name => matches!(party, PartyId::$role { .. }),)+ }
            }

            /// Returns the length of the longest body in bytes, or `None` if messages of this kind have none.
            pub fn max_body_bytes(self, roster: &Roster) -> Option<u64> {
                let bodies: &[fn(&Roster) -> u64] = match self { $(Self::$name => &[$($body)?],)+ };
                bodies.first().map(|most| most(roster))
            }
        }

        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)+
            }

            impl Message for $name {
                const KIND: Kind = Kind::$name;
            }

            impl Encode for $name {
                fn encode(&self, out: &mut Writer) {
                    $(out.put(&self.$field);)+
                }
            }

            impl DecodeWith<Roster> for $name {
                fn decode_with(input: &mut Reader<'_>, roster: &Roster) -> Result<Self, Error> {
                    Ok(Self { $($field: field!(input, roster $(, $read)?),)+ })
                }
            }
        )+
    };
}

macro_rules! field {
    ($input:ident, $roster:ident) => {
        DecodeWith::decode_with($input, $roster)?
    };
    ($input:ident, $roster:ident, $read:path) => {
        $read($input, $roster)?
    };
}

/// Declares a named enum that is written as one byte: the byte and the name of each variant.
macro_rules! byte_enum {
    ($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $variant:ident = $byte:literal $text:literal,)+
    } else $reason:literal) => {
        named_enum! {
            $(#[$meta])*
            pub enum $name {
                $($(#[$doc])* $variant = $text,)+
            }
        }

        impl Encode for $name {
            fn encode(&self, out: &mut Writer) {
                out.u8(match self { $(Self::$variant => $byte,)+ });
            }
        }

        impl Decode for $name {
            fn decode(input: &mut Reader<'_>) -> Result<Self, Error> {
                match input.u8()? { $($byte => Ok(Self::$variant),)+ _ => Err(Error::Encoding { reason: $reason }) }
            }
        }
    };
}

pub(super) use {byte_enum, field, messages};
