package dynamodb

import (
	"fmt"
	"strings"
)

// Plan returns a CloudFormation template for the table that EnsureTable would make.
func Plan(options Options) string {
	options = options.withDefaults()
	var b strings.Builder
	fmt.Fprintf(&b, `AWSTemplateFormatVersion: "2010-09-09"
Description: The table of a gobridge outbox
Resources:
  Outbox:
    Type: AWS::DynamoDB::Table
    DeletionPolicy: Retain
    UpdateReplacePolicy: Retain
    Properties:
      TableName: %s
      BillingMode: PAY_PER_REQUEST
      PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true }
      AttributeDefinitions:
        - { AttributeName: %s, AttributeType: S }
        - { AttributeName: %s, AttributeType: S }
        - { AttributeName: %s, AttributeType: B }
      KeySchema:
        - { AttributeName: %[2]s, KeyType: HASH }
        - { AttributeName: %[3]s, KeyType: RANGE }
      GlobalSecondaryIndexes:
        - IndexName: %[5]s
          KeySchema:
            - { AttributeName: %[2]s, KeyType: HASH }
            - { AttributeName: %[4]s, KeyType: RANGE }
          Projection:
            ProjectionType: INCLUDE
            NonKeyAttributes: [%[6]s]
      TimeToLiveSpecification: { AttributeName: %[7]s, Enabled: true }
`, options.Table, attrPK, attrSK, attrClaimSort, claimIndex, strings.Join(projected, ", "), attrTTL)
	return b.String()
}
