/* features.c - see constraint.h */
#include "config.h"

#include "constraint.h"

#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:=-";

struct reading {
    const char *at;              /* what is not read yet */
    const char *have;
    const char *wrong;           /* what is wanted there; NULL: nothing was wrong */
};

static bool has(const char *have, const char *name, size_t n)
{
    for (; *have != '\0'; have += strcspn(have, ","), have += *have == ',') {
        if (strcspn(have, ",") == n && memcmp(have, name, n) == 0)
            return true;
    }
    return false;
}

static bool read_all(struct reading *r, bool inside);

/* A name, or a part in parentheses. */
static bool read_one(struct reading *r, bool inside)
{
    size_t n = strspn(r->at, letters);
    const char *name = r->at;
    bool fits;

    if (n > 0) {
        r->at += n;
        return has(r->have, name, n);
    }
    if (*r->at != '(' || inside) {
        r->wrong = inside ? "the name of a feature" : "the name of a feature, or a part in parentheses";
        return false;
    }
    r->at++;
    fits = read_all(r, true);
    if (r->wrong == NULL && *r->at != ')')
        r->wrong = "& or | as before, or )";
    r->at += r->wrong == NULL;
    return fits;
}

static bool read_all(struct reading *r, bool inside)
{
    bool fits = read_one(r, inside);
    char joined = *r->at;

    if (joined != '&' && joined != '|')
        return fits;
    while (r->wrong == NULL && *r->at == joined) {
        bool next;

        r->at++;
        next = read_one(r, inside);
        fits = joined == '&' ? fits && next : fits || next;
    }
    return fits;
}

int constraint_check(const char *expression, struct err *e)
{
    struct reading r = { .at = expression, .have = "" };

    if (strlen(expression) > CONSTRAINT_MOST)
        return err_set(e, ERR_USAGE, "a constraint of at most %d characters", CONSTRAINT_MOST);
    read_all(&r, false);
    if (r.wrong == NULL && *r.at != '\0')
        r.wrong = "& or |, and the same on a level (a part in parentheses may have the other one)";
    return r.wrong == NULL ? 0 : err_set(e, ERR_USAGE, "at character %d %s", (int)(r.at - expression) + 1, r.wrong);
}

bool constraint_fits(const char *expression, const char *have)
{
    struct reading r = { .at = expression, .have = have == NULL ? "" : have };

    return read_all(&r, false);
}
