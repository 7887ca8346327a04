//! Tokens as parameters and columns of SQL databases, like an `i64`.

use super::Token;
use sqlx::{Database, Decode, Encode, Type, encode::IsNull, error::BoxDynError};

impl<Db: Database> Type<Db> for Token
where
    i64: Type<Db>,
{
    fn type_info() -> Db::TypeInfo {
        <i64 as Type<Db>>::type_info()
    }

    fn compatible(column: &Db::TypeInfo) -> bool {
        <i64 as Type<Db>>::compatible(column)
    }
}

impl<'q, Db: Database> Encode<'q, Db> for Token
where
    i64: Encode<'q, Db>,
{
    fn encode_by_ref(&self, buffer: &mut Db::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.as_i64().encode_by_ref(buffer)
    }

    fn produces(&self) -> Option<Db::TypeInfo> {
        self.as_i64().produces()
    }
}

impl<'r, Db: Database> Decode<'r, Db> for Token
where
    i64: Decode<'r, Db>,
{
    fn decode(value: Db::ValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self::try_from(i64::decode(value)?)?)
    }
}
