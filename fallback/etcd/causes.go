package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// isAnswer reports whether etcd has done what it was asked for, and said no.
func isAnswer(err error) bool { return isGone(err) || tooLarge(err) }

// isGone reports whether a lease, or a key that keeps its value, is not there.
func isGone(err error) bool {
	return errors.Is(err, rpctypes.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrKeyNotFound)
}

// tooLarge reports whether etcd has refused a transaction because of its size.
func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		err != nil && codeOf(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

// mayPass reports whether another attempt may succeed soon.
func mayPass(err error) bool {
	code := codeOf(err)
	return isLate(err) || errors.Is(err, errStranger) || code == codes.Unavailable || code == codes.FailedPrecondition // such as of a learner
}

// isLate reports whether no answer has come in time.
func isLate(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || codeOf(err) == codes.DeadlineExceeded
}

func codeOf(err error) codes.Code {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code()
	}
	return status.Code(err)
}

// causeOf returns why a call has failed, in words that stay the same from call to call, and what to do
// about it.
func causeOf(err error) (why, remedy string) {
	const config = "--store (Config.Store)"
	if name, ok := errors.AsType[*net.DNSError](err); ok {
		return fmt.Sprintf("the host name %q does not resolve: %s", name.Name, name.Err), "correct the host in " + config + ", or its DNS"
	}
	text := err.Error()
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		text = e.Error()
	} else if s, ok := status.FromError(err); ok {
		text = s.Message()
	}
	switch code := codeOf(err); {
	case errors.Is(err, errStranger):
		return "another etcd cluster answers than before", "name members of one etcd cluster in " + config + "; if a snapshot was restored, wait for one --session-ttl"
	case errors.Is(err, rpctypes.ErrNoSpace):
		return text, "compact and defragment it, raise its --quota-backend-bytes, and disarm the alarm"
	case tooLarge(err):
		return text, "give it at least its default --max-txn-ops (128) and --max-request-bytes (1.5 MiB)"
	case errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrLeaderChanged), errors.Is(err, rpctypes.ErrTimeout), errors.Is(err, rpctypes.ErrTimeoutDueToLeaderFail):
		return text, "see whether more than half of its members run and reach each other"
	case code == codes.Unauthenticated, errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrUserEmpty):
		return text, "correct user and password in the URL of " + config
	case code == codes.PermissionDenied:
		return text, "grant the user of " + config + " a role that reads and writes keys that begin with {keyway:"
	case isLate(err):
		return "it does not answer", "see whether it runs, and whether a firewall drops packets to it"
	case strings.Contains(text, "connection refused"):
		return "dial: connection refused", "see whether an etcd runs there, and correct " + config
	case code == codes.Unavailable:
		return text, "see whether an etcd runs there, whether it wants TLS (etcds://) and with which ca, cert and key, and its log"
	}
	return text, "see the log of etcd"
}
