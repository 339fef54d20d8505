# schema_sql.awk - schema.sql as one C string; comments stay out, quotes and backslashes are escaped
BEGIN { print "/* schema_sql.h - made from state/schema.sql */"; print "static const char SCHEMA_SQL[] =" }
{
    sub(/--.*$/, ""); sub(/[ \t]+$/, "")
    if ($0 == "") next
    gsub(/\\/, "\\\\"); gsub(/"/, "\\\"")
    print "    \"" $0 "\\n\""
}
END { print "    ;" }
