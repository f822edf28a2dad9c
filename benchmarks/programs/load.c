/* Requests in; how a server answered them, as one line of JSON, out: an epoll client that is never what is waited for.
 *
 *   load -p PORT -q FILE [-c CONCURRENCY] [-n COUNT] [-f FIRST] [-e END] [-s] [-o FILE] [-h] [-t SECONDS]
 *
 *   -q FILE   the request, head and body, sent as it is; it must ask for `Connection: close`
 *   -f FIRST  bytes that a reply's first content begins with       -e END   bytes near the end of every whole reply
 *   -s        replies hold stamps, @nanoseconds@, of when the agent wrote them: how late they are is measured
 *   -o FILE   the first reply, written when all is over            -t       the longest that everything may take
 *   -h        hold: open COUNT replies, say so, and leave when the standard input ends
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PIECE (256 * 1024)
#define CARRY 64         /* what may belong to a mark or a stamp that the next read completes */
#define TAIL 1024        /* where END is looked for */
#define KEPT (64L << 20) /* the most of a reply that is kept for -o */
#define AT_ONCE 256      /* connections that a holding client opens before it waits for their replies */
#define MOST_STAMPS 4000000L

typedef struct {
    int socket, is_sent, status;
    long long began, first; /* nanoseconds; first content, 0 until then */
    long long stamp;        /* the latest: at its end a reply may repeat its text, and with it older ones */
    size_t size, carried, tail_size;
    char carry[CARRY], tail[TAIL];
} Reply;

typedef struct { double *values; long count; } Sample;

static const char *request, *first_mark, *end_mark;
static size_t request_size;
static int port, events_queue, has_stamps, is_holding;
static Reply *kept_reply;
static char *kept;
static size_t kept_size;
static Sample totals, firsts, delays;
static long finished, failed, answered;
static unsigned long long bytes;

static long long nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(2); }

static int ascending(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void tell(const char *name, Sample *sample) {
    qsort(sample->values, (size_t)sample->count, sizeof *sample->values, ascending);
    const double *values = sample->values;
    long last = sample->count - 1;
    if (last < 0) { printf(",\"%s\":null", name); return; }
    printf(",\"%s\":{\"count\":%ld,\"p50\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, sample->count,
           values[(long)(0.5 * last + 0.5)], values[(long)(0.99 * last + 0.5)], values[last]);
}

static void watch(Reply *reply, int operation, unsigned interest) {
    struct epoll_event event = {.events = interest, .data.ptr = reply};
    if (epoll_ctl(events_queue, operation, reply->socket, &event) < 0) fail("epoll_ctl");
}

static void open_reply(Reply *reply) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    int on = 1;
    memset(reply, 0, sizeof *reply);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    reply->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (reply->socket < 0) fail("socket");
    setsockopt(reply->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    reply->began = nanoseconds();
    if (connect(reply->socket, (struct sockaddr *)&address, sizeof address) < 0 && errno != EINPROGRESS) fail("connect");
    watch(reply, EPOLL_CTL_ADD, EPOLLOUT);
}

static void close_reply(Reply *reply, int is_whole) {
    long long now = nanoseconds();
    close(reply->socket);
    finished++;
    bytes += reply->size;
    if (!is_whole || reply->status != 200 || (first_mark && !reply->first) ||
        (end_mark && !memmem(reply->tail, reply->tail_size, end_mark, strlen(end_mark)))) {
        failed++;
        return;
    }
    totals.values[totals.count++] = (double)(now - reply->began) / 1e3;
    if (reply->first) firsts.values[firsts.count++] = (double)(reply->first - reply->began) / 1e3;
}

static void measure_stamps(Reply *reply, const char *data, const char *end, long long now) {
    while ((data = memchr(data, '@', (size_t)(end - data))) != NULL) {
        char *after;
        long long written = strtoll(++data, &after, 10);
        if (after - data > 9 && after < end && *after == '@') {
            if (written > reply->stamp && delays.count < MOST_STAMPS) {
                delays.values[delays.count++] = (double)(now - written) / 1e3;
                reply->stamp = written;
            }
            data = after + 1;
        }
    }
}

/* `data` begins with what was carried over from the read before. */
static void look_at(Reply *reply, char *data, size_t size, size_t fresh) {
    long long now = nanoseconds();
    data[size] = 0; /* an end for strtoll */
    if (!reply->size) {
        reply->status = size > 12 ? atoi(data + 9) : 0;
        answered++;
    }
    reply->size += fresh;
    if (first_mark && !reply->first && memmem(data, size, first_mark, strlen(first_mark))) reply->first = now;
    size_t looked_at = size;
    if (has_stamps) { /* whole lines only: a stamp is measured once */
        const char *line_end = memrchr(data, '\n', size);
        if (!line_end || size - (size_t)(line_end - data) > CARRY) line_end = data + size - 1;
        looked_at = (size_t)(line_end - data) + 1;
        measure_stamps(reply, data, data + looked_at, now);
        reply->carried = size - looked_at;
    } else {
        reply->carried = size < CARRY ? size : CARRY;
    }
    memcpy(reply->carry, data + size - reply->carried, reply->carried);
    const char *news = data + size - fresh;
    if (reply == kept_reply && kept_size + fresh <= KEPT) {
        memcpy(kept + kept_size, news, fresh);
        kept_size += fresh;
    }
    size_t kept_tail = fresh >= TAIL ? 0 : reply->tail_size + fresh <= TAIL ? reply->tail_size : TAIL - fresh;
    size_t new_tail = fresh < TAIL ? fresh : TAIL;
    memmove(reply->tail, reply->tail + reply->tail_size - kept_tail, kept_tail);
    memcpy(reply->tail + kept_tail, news + fresh - new_tail, new_tail);
    reply->tail_size = kept_tail + new_tail;
}

/* Whether the reply is still open. */
static int receive(Reply *reply) {
    static char data[CARRY + PIECE + 1];
    memcpy(data, reply->carry, reply->carried);
    ssize_t size = read(reply->socket, data + reply->carried, PIECE);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return 1;
    if (size <= 0) {
        close_reply(reply, size == 0);
        return 0;
    }
    look_at(reply, data, reply->carried + (size_t)size, (size_t)size);
    return 1;
}

static int send_request(Reply *reply) {
    if (write(reply->socket, request, request_size) != (ssize_t)request_size) {
        close_reply(reply, 0);
        return 0;
    }
    reply->is_sent = 1;
    watch(reply, EPOLL_CTL_MOD, EPOLLIN);
    return 1;
}

static const char *contents(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    char *data = malloc(1 << 20);
    *size = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

int main(int count, char **words) {
    long concurrency = 1, wanted = 1, started = 0;
    double seconds = 120;
    const char *kept_path = NULL;
    int option, has_told = 0;
    signal(SIGPIPE, SIG_IGN);
    while ((option = getopt(count, words, "p:q:c:n:f:e:so:ht:")) != -1) switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'q': request = contents(optarg, &request_size); break;
        case 'c': concurrency = atol(optarg); break;
        case 'n': wanted = atol(optarg); break;
        case 'f': first_mark = optarg; break;
        case 'e': end_mark = optarg; break;
        case 's': has_stamps = 1; break;
        case 'o': kept_path = optarg; break;
        case 'h': is_holding = 1; break;
        case 't': seconds = atof(optarg); break;
        default: return 2;
    }
    if (!request || wanted < 1 || concurrency < 1) { fprintf(stderr, "load: give -p and -q\n"); return 2; }
    if (is_holding) concurrency = wanted;
    if (concurrency > wanted) concurrency = wanted;
    Reply *replies = calloc((size_t)concurrency, sizeof *replies);
    totals.values = calloc((size_t)wanted, sizeof(double));
    firsts.values = calloc((size_t)wanted, sizeof(double));
    delays.values = has_stamps ? calloc(MOST_STAMPS, sizeof(double)) : NULL;
    if (kept_path) {
        kept_reply = replies;
        kept = mmap(NULL, KEPT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (kept == MAP_FAILED) fail("mmap");
    }
    events_queue = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event input = {.events = EPOLLIN | EPOLLHUP, .data.ptr = NULL}, ready[512];
    if (is_holding && epoll_ctl(events_queue, EPOLL_CTL_ADD, STDIN_FILENO, &input) < 0) fail("standard input");
    long long began = nanoseconds(), deadline = began + (long long)(seconds * 1e9);
    int is_over = 0;
    while (!is_over && finished < wanted && nanoseconds() < deadline) {
        while (started < concurrency && (!is_holding || started < answered + AT_ONCE)) open_reply(&replies[started++]);
        int found = epoll_wait(events_queue, ready, 512, 100);
        for (int place = 0; place < found; place++) {
            Reply *reply = ready[place].data.ptr;
            if (!reply) { is_over = 1; continue; }
            int is_open = reply->is_sent ? receive(reply) : send_request(reply);
            if (is_open || is_holding) continue;
            if (reply == kept_reply) kept_reply = NULL;
            if (started < wanted) { started++; open_reply(reply); }
        }
        if (is_holding && !has_told && answered >= wanted) {
            printf("open\n");
            fflush(stdout);
            has_told = 1;
        }
    }
    double took = (double)(nanoseconds() - began) / 1e9;
    if (kept_path) {
        FILE *file = fopen(kept_path, "wb");
        if (!file || fwrite(kept, 1, kept_size, file) != kept_size || fclose(file)) fail(kept_path);
    }
    printf("{\"asked\":%ld,\"answered\":%ld,\"finished\":%ld,\"failed\":%ld,\"seconds\":%.6f,\"bytes\":%llu", wanted, answered, finished, failed, took, bytes);
    tell("total_us", &totals);
    tell("first_us", &firsts);
    tell("delay_us", &delays);
    printf("}\n");
    return 0;
}
